/* Generation: one token at a time over a cache of keys and values. */
#include "common.h"

enum { WIDE_MAX = (1 << 30) + (1 << 24) };

KERNEL(load_token) {
    if (x->part) return;
    u32 position = x->scalars[POSITION], last = (u32)c->count - 1;
    c->ids[0] = c->prompt[position < last ? position : last];
}

/* One static exponent for all positions: rows of different tokens share a GEMM. */
KERNEL(cache_append) {
    i32 shift = c->cache_e - exponent(x, c->x_exp), left = min_i32(-shift, 30);
    i32 *row = c->cache + x->scalars[POSITION] * (u32)c->cols;
    struct span s = share(c->cols, 4, x);
    u32 top = 0;
    for (i32 i = s.first; i < s.last; i++) {
        i32 limit = left > 0 ? WIDE_MAX >> left : WIDE_MAX;
        row[i] = shift >= 0 ? (i32)rounding_shift(c->x[i], shift)
                            : max_i32(-limit, min_i32(c->x[i], limit)) << left;
        top = max_u32(top, magnitude(row[i]));
    }
    raise_max(x, c->cache_max, top);
    set_exponent(x, c->cache_exp, c->cache_e);
}

KERNEL(emit) {
    struct span s = share(c->count, 4, x);
    if (x->part == 0) c->out[0] = exponent(x, c->x_exp);
    for (i32 i = s.first; i < s.last; i++) c->out[1 + i] = c->x[i];
}

KERNEL(advance) {
    if (x->part == 0) x->scalars[POSITION] += (u32)c->by;
}
