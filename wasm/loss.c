/* Cross-entropy with its gradient, and the loss sum. */
#include "exp_rows.h"

_Static_assert((LAST_TERM + 1) * sizeof(i32) <= TERMS_BYTES, "wasm_layout.py reserves it");

/* log2(z / 2^29) in Q16, by a table of 4,096 intervals with 14 bits of interpolation. */
INLINE i32 log2_excess(i64 z, const i32 *logs) {
    i32 b = bit_length((u64)z);
    i32 f = (i32)((z >> (b - 29)) - (1 << 28));
    i32 i = f >> 16, fraction = (f >> 2) & 0x3fff;
    i64 log = logs[i] + rounding_shift((i64)(logs[i + 1] - logs[i]) * fraction, 14);
    return (i32)(((b - 30) << 16) + rounding_shift(log, 8));
}

enum { AT_ONCE = 64 /* elements of a gradient that are sure or done again together */ };

static void ignore_row(const struct cross_entropy_call *c, i32 r) {
    c->loss[r] = 0;
    for (i32 i = 0; i < c->cols; i += 8)
        store_narrow(c->dlogits, r * c->cols + i, wasm_i32x4_const_splat(0));
}

/* What a row's gradient needs. */
struct gradient {
    u8 *out;
    i32 first, target; /* the row's first element; an index in the row */
    struct key key;
    struct digits inverse; /* 1 / z */
    i32 limit;             /* terms below it have p <= 126 * 2^16 */
    u32 up;                /* p = (term << up) * factor >> 32, or 1 or 2 more */
    v128 factor;
};

INLINE struct gradient make_gradient(const struct cross_entropy_call *c, i32 r, i64 z,
                                     struct key key) {
    struct reciprocal inverse = reciprocal_of(z);
    i32 k = inverse.bits - 17, s = k + 14, left = min_i32(32 - s, 3); /* s >= 27 */
    u32 factor = (u32)(inverse.high << 14) + (u32)inverse.low; /* <= 2^28; p = term * it >> s */
    u64 limit = s < 40 ? ((u64)126 << (16 + s)) / factor : 1 << 30;
    return (struct gradient){c->dlogits,
                             r * c->cols,
                             (i32)c->targets[r],
                             key,
                             reciprocal_digits(inverse, k),
                             limit < 1 << 30 ? (i32)limit : 1 << 30,
                             (u32)(32 - s - left),
                             wasm_i32x4_splat((i32)(left < 0 ? factor >> -left : factor << left))};
}

/* (p - onehot + noise) >> 16 of some elements of a row of terms in Q29. */
static void store_exactly(const struct gradient *g, const i32 *terms, i32 first, i32 last) {
    for (i32 i = first; i < last; i += 8) {
        v128 low, high;
        random8(g->key, g->first + i, 16, &low, &high);
        v128 p0 = mul_digits4(wasm_v128_load(terms + i), &g->inverse);
        v128 p1 = mul_digits4(wasm_v128_load(terms + i + 4), &g->inverse);
        if (i == (g->target & ~7)) {
            i32 eight[8];
            wasm_v128_store(eight, p0);
            wasm_v128_store(eight + 4, p1);
            eight[g->target & 7] -= 1 << 30;
            p0 = wasm_v128_load(eight);
            p1 = wasm_v128_load(eight + 4);
        }
        low = wasm_i32x4_shr(wasm_i32x4_add(p0, low), 16);
        high = wasm_i32x4_shr(wasm_i32x4_add(p1, high), 16);
        store_narrow(g->out, g->first + i, pack16(low, high));
    }
}

/* p, or 1 or 2 less: what is cut off is below 1 + 2^29 / 2^32, and p rounds each digit by 0.5. */
INLINE v128 nearly(const struct gradient *g, v128 terms) {
    terms = wasm_i32x4_shl(terms, g->up);
    v128 low = wasm_u64x2_extmul_low_u32x4(terms, g->factor);
    v128 high = wasm_u64x2_extmul_high_u32x4(terms, g->factor);
    return wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
}

/* The same without a target, from products of one digit; returns whether all of it is sure: p is
 * at most 126 * 2^16, and no lower half of p + noise is so large that 2 more would carry. */
static __attribute__((noinline)) i32 store_nearly(const struct gradient *g, const i32 *terms,
                                                  i32 first, i32 last) {
    v128 most = wasm_i32x4_const_splat(0), seen = wasm_i32x4_const_splat(0);
    for (i32 i = first; i < last; i += 8) {
        v128 low, high;
        random8(g->key, g->first + i, 16, &low, &high);
        v128 t0 = wasm_v128_load(terms + i), t1 = wasm_v128_load(terms + i + 4);
        low = wasm_i32x4_add(nearly(g, t0), low);
        high = wasm_i32x4_add(nearly(g, t1), high);
        seen = wasm_v128_or(seen, wasm_v128_or(t0, t1));
        most = wasm_u32x4_max(most, wasm_u32x4_max(wasm_i32x4_shl(low, 16),
                                                   wasm_i32x4_shl(high, 16)));
        v128 m = pack16(wasm_i32x4_shr(low, 16), wasm_i32x4_shr(high, 16));
        wasm_v128_store(g->out + 2 * (u32)(g->first + i), /* 0 to 127: no high bytes */
                        wasm_i8x16_narrow_i16x8(wasm_i32x4_const_splat(0), m));
    }
    v128 is_sure = wasm_u32x4_lt(most, wasm_i32x4_const_splat((i32)0xfffe0000));
    v128 is_small = wasm_i32x4_lt(seen, wasm_i32x4_splat(g->limit));
    return wasm_i32x4_all_true(wasm_v128_and(is_sure, is_small));
}

/* A row's gradient from its terms, which have zeros up to cols.  Meanwhile looks through the next
 * row's logits and returns their maximum: they come from memory while there is much to compute. */
static i32 store_gradient(const struct cross_entropy_call *c, const struct gradient *g,
                          const i32 *terms, const i32 *next) {
    i32 top = next[0];
    for (i32 first = 0; first < c->cols; first += AT_ONCE) {
        i32 last = min_i32(first + AT_ONCE, c->cols);
        i32 has_target = first <= g->target && g->target < last;
        if (has_target || !store_nearly(g, terms, first, last))
            store_exactly(g, terms, first, last);
        i32 valid = min_i32(last, c->valid) - first;
        if (valid > 0) top = max_i32(top, row_top(next + first, valid));
    }
    return top;
}

KERNEL(cross_entropy) {
    struct exponential f = make_exponential(c->exp_table, c->scale_m, c->scale_l, c->scale_e,
                                            exponent(x, c->x_exp));
    struct key key = tensor_key(x, c->tensor_id);
    struct span rows = share(c->rows, 1, x);
    i32 *terms = (i32 *)x->scratch;
    make_terms(&f, terms + c->cols);
    i32 top = 0;
    if (rows.first < rows.last) top = row_top(c->logits + (u32)rows.first * c->cols, c->valid);
    for (i32 r = rows.first; r < rows.last; r++) {
        const i32 *m = c->logits + (u32)r * c->cols, *next = r + 1 < rows.last ? m + c->cols : m;
        u32 target = c->targets[r];
        if (target == 0xffffffff) {
            ignore_row(c, r);
            top = row_top(next, c->valid);
            continue;
        }
        i64 z = exponential_terms(&f, m, c->valid, top, terms, 1);
        for (i32 i = (c->valid + 7) & ~7; i < c->cols; i++) terms[i] = 0;
        i32 d = target < (u32)c->valid ? top - m[target] : 0;
        c->loss[r] = exponent_of(&f, d) + log2_excess(z, c->log_table);
        struct gradient gradient = make_gradient(c, r, z, key);
        top = store_gradient(c, &gradient, terms, next);
    }
    set_exponent(x, c->out_exp, PROBABILITY_EXPONENT);
}

KERNEL(sum_loss) {
    if (x->part) return;
    u32 high = 0, low = 0;
    for (i32 i = 0; i < c->count; i++) {
        high += (u32)(c->loss[i] >> 16);
        low += (u32)c->loss[i] & 0xffff;
    }
    c->record[c->offset] += high;
    c->record[c->offset + 1] += low;
}
