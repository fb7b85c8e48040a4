/* Causal softmax, its division and its backward pass. */
#include "exp_rows.h"

/* Q29 to Q14, eight values. */
INLINE v128 narrow_probabilities(const i32 *wide) {
    struct shift shift = make_shift(15);
    return pack16(shift4(wasm_v128_load(wide), shift), shift4(wasm_v128_load(wide + 4), shift));
}

KERNEL(softmax) {
    struct exponential f = make_exponential(c->table, c->scale_m, c->scale_l, c->scale_e,
                                            exponent(x, c->x_exp));
    struct span rows = share(c->rows, 1, x);
    i32 *terms = (i32 *)x->scratch;
    for (i32 r = rows.first; r < rows.last; r++) {
        const i32 *m = c->scores + (u32)r * c->cols;
        i32 query = c->moving ? (i32)x->scalars[POSITION] : r % c->cols;
        i32 seen = min_i32(query + 1, c->cols);
        v128 z = wasm_i32x4_const_splat(0);
        exponential_terms(&f, m, seen, row_top(m, seen), terms, 0);
        for (i32 i = 0; i < c->cols; i += 8) {
            v128 p = i < seen ? narrow_probabilities(terms + i) : wasm_i32x4_const_splat(0);
            store_narrow(c->out, r * c->cols + i, p);
            z = wasm_i32x4_add(z, wasm_i32x4_extadd_pairwise_i16x8(p));
        }
        c->z[r] = sum_lanes(z);
    }
    set_exponent(x, c->out_exp, PROBABILITY_EXPONENT);
}

KERNEL(row_div) {
    i32 x_exp = exponent(x, c->x_exp), e = max_i32(exponent(x, c->v_exp), x_exp) - 14;
    struct span rows = share(c->rows, 1, x);
    v128 top = wasm_i32x4_const_splat(0);
    for (i32 r = rows.first; r < rows.last; r++) {
        i32 batch = r / c->context, position = r % c->context;
        for (i32 h = 0; h < c->heads; h++) {
            u32 at = ((u32)r * c->heads + h) * c->head_dim;
            struct reciprocal z = reciprocal_of(c->z[(batch * c->heads + h) * c->context + position]);
            struct digits inverse = reciprocal_digits(z, z.bits - 1 + e - x_exp);
            for (i32 j = 0; j < c->head_dim; j += 4) {
                v128 o = mul_digits4(wasm_v128_load(c->x + at + j), &inverse);
                wasm_v128_store(c->out + at + j, o);
                top = max4(top, o);
            }
        }
    }
    raise_max(x, c->out_max, max_lane(top));
    set_exponent(x, c->out_exp, e);
}

/* P = P'/Z in Q29 of `count` values (a multiple of 8). */
INLINE void wide_probabilities(const u8 *p, i32 first, i32 count, i32 z, i32 *out) {
    struct reciprocal r = reciprocal_of(z);
    struct digits inverse = reciprocal_digits(r, r.bits - 1);
    unpack_narrow(p, first, count, out);
    for (i32 i = 0; i < count; i += 4) {
        v128 numerator = wasm_i32x4_shl(wasm_v128_load(out + i), 15);
        wasm_v128_store(out + i, mul_digits4(numerator, &inverse));
    }
}

KERNEL(probabilities) {
    struct span rows = share(c->rows, 1, x);
    i32 *wide = (i32 *)x->scratch;
    for (i32 r = rows.first; r < rows.last; r++) {
        wide_probabilities(c->p, r * c->cols, c->cols, c->z[r], wide);
        for (i32 i = 0; i < c->cols; i += 8)
            store_narrow(c->out, r * c->cols + i, narrow_probabilities(wide + i));
    }
    set_exponent(x, c->out_exp, PROBABILITY_EXPONENT);
}

KERNEL(softmax_backward) {
    struct span rows = share(c->rows, 1, x);
    struct product_shift by_14 = make_product_shift(14), by_15 = make_product_shift(15),
                         by_29 = make_product_shift(29);
    i32 *wide = (i32 *)x->scratch, *dp = wide + c->cols, power = c->scale_m == 16384;
    v128 scale = wasm_i32x4_splat(c->scale_m), top = wasm_i32x4_const_splat(0);
    for (i32 r = rows.first; r < rows.last; r++) {
        i32 *out = c->out + (u32)r * c->cols;
        wide_probabilities(c->p, r * c->cols, c->cols, c->z[r], wide);
        unpack_narrow(c->dp, r * c->cols, c->cols, dp);
        v128 dots = wasm_i32x4_const_splat(0);
        for (i32 i = 0; i < c->cols; i += 4)
            dots = wasm_i32x4_add(
                dots, mulq4(wasm_v128_load(wide + i), wasm_v128_load(dp + i), by_15));
        v128 dot = wasm_i32x4_splat(sum_lanes(dots));
        for (i32 i = 0; i < c->cols; i += 4) {
            v128 p = wasm_v128_load(wide + i);
            v128 w = wasm_i32x4_sub(wasm_i32x4_shl(wasm_v128_load(dp + i), 14), dot);
            v128 high = shift4(p, make_shift(15));
            v128 low = wasm_i32x4_sub(p, wasm_i32x4_shl(high, 15));
            v128 o = wasm_i32x4_add(mulq4(w, high, by_14), mulq4(w, low, by_29));
            if (!power) o = mulq4(o, scale, by_15);
            wasm_v128_store(out + i, o);
            top = max4(top, o);
        }
    }
    raise_max(x, c->out_max, max_lane(top));
    set_exponent(x, c->out_exp, exponent(x, c->dp_exp) - 14 + c->scale_e + (power ? 14 : 15));
}
