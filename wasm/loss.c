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

static void ignore_row(const struct cross_entropy_call *c, i32 r) {
    c->loss[r] = 0;
    for (i32 i = 0; i < c->cols; i += 8)
        store_narrow(c->dlogits, r * c->cols + i, wasm_i32x4_const_splat(0));
}

/* (p - onehot + noise) >> 16 of a row of terms in Q29, which have zeros up to cols. */
INLINE void store_gradient(const struct cross_entropy_call *c, i32 r, i32 *terms, i64 z,
                           struct key key) {
    struct reciprocal inverse = reciprocal_of(z);
    struct digits digits = reciprocal_digits(inverse, inverse.bits - 17);
    i32 target = (i32)c->targets[r], first = r * c->cols;
    for (i32 i = 0; i < c->cols; i += 8) {
        v128 low, high;
        random8(key, first + i, 16, &low, &high);
        v128 p0 = mul_digits4(wasm_v128_load(terms + i), &digits);
        v128 p1 = mul_digits4(wasm_v128_load(terms + i + 4), &digits);
        if (i == (target & ~7)) {
            i32 eight[8];
            wasm_v128_store(eight, p0);
            wasm_v128_store(eight + 4, p1);
            eight[target & 7] -= 1 << 30;
            p0 = wasm_v128_load(eight);
            p1 = wasm_v128_load(eight + 4);
        }
        low = wasm_i32x4_shr(wasm_i32x4_add(p0, low), 16);
        high = wasm_i32x4_shr(wasm_i32x4_add(p1, high), 16);
        store_narrow(c->dlogits, first + i, pack16(low, high));
    }
}

KERNEL(cross_entropy) {
    struct exponential f = make_exponential(c->exp_table, c->scale_m, c->scale_l, c->scale_e,
                                            exponent(x, c->x_exp));
    struct key key = tensor_key(x, c->tensor_id);
    struct span rows = share(c->rows, 1, x);
    i32 *terms = (i32 *)x->scratch;
    make_terms(&f, terms + c->cols);
    for (i32 r = rows.first; r < rows.last; r++) {
        const i32 *m = c->logits + (u32)r * c->cols;
        u32 target = c->targets[r];
        if (target == 0xffffffff) {
            ignore_row(c, r);
            continue;
        }
        i32 top = row_top(m, c->valid);
        i64 z = exponential_terms(&f, m, c->valid, top, terms, 1);
        for (i32 i = (c->valid + 7) & ~7; i < c->cols; i++) terms[i] = 0;
        store_gradient(c, r, terms, z, key);
        i32 d = target < (u32)c->valid ? top - m[target] : 0;
        i32 t = wasm_i32x4_extract_lane(exponents4(&f, wasm_i32x4_splat(d), f.k), 0);
        c->loss[r] = t + log2_excess(z, c->log_table);
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
