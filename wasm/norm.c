/* RMSNorm and RoPE, forward and backward. */
#include "common.h"
#include "tables.h"

enum { EPSILON_EXPONENT = -20, ROW_MAX_BIAS = 4096 };

/* The shift that rounds v >= 0 to at most NARROW_MAX. */
INLINE i32 shift_to_15_bits(i64 v) {
    i32 s = bit_length((u64)v) - 15;
    return s + (rounding_shift(v, s) > NARROW_MAX);
}

/* total^-1/2 = r * 2^(-28 - k/2), r in (2^27, 2^28], k even; total >= 1. */
struct root {
    i64 r;
    i32 k;
};

INLINE struct root reciprocal_sqrt(i64 total) {
    i32 k = bit_length((u64)total) - 29;
    k += 1 - (k & 1);
    i64 v = k > 0 ? total >> k : total << -k;
    i64 r0 = RSQRT_TABLE[v >> 19];
    i64 d = (1 << 27) - mulq(mulq(v, r0, 14), r0, 14);
    return (struct root){(r0 << 14) + rounding_shift(r0 * rounding_shift(d, 4), 10), k + 27};
}

KERNEL(rmsnorm) {
    i32 x_exp = exponent(x, c->x_exp);
    struct span rows = share(c->rows, 1, x);
    v128 top = wasm_i32x4_const_splat(0);
    i32 rows_max = -ROW_MAX_BIAS;
    for (i32 r = rows.first; r < rows.last; r++) {
        const i32 *in = c->x + (u32)r * c->cols;
        i32 *out = c->out + (u32)r * c->cols;
        u32 row_max = 0;
        for (i32 i = 0; i < c->cols; i++) row_max = max_u32(row_max, magnitude(in[i]));
        i32 shift_bits = max_i32(shift_to_15_bits(row_max), -26 - x_exp);
        struct shift shift = make_shift(shift_bits);
        i64 total = 0;
        for (i32 i = 0; i < c->cols; i += 4) {
            v128 m = shift4(wasm_v128_load(in + i), shift);
            wasm_v128_store(out + i, m);
            v128 square = wasm_i32x4_mul(m, m);
            v128 sums = wasm_i64x2_add(wasm_u64x2_extend_low_u32x4(square),
                                       wasm_u64x2_extend_high_u32x4(square));
            total += wasm_i64x2_extract_lane(sums, 0) + wasm_i64x2_extract_lane(sums, 1);
        }
        i32 row_exp = shift_bits + x_exp, up = EPSILON_EXPONENT - 2 * row_exp;
        total += ((i64)c->cols << min_i32(max_i32(up, 0), 32)) >> min_i32(max_i32(-up, 0), 62);
        struct root inverse = reciprocal_sqrt(total < 1 ? 1 : total);
        i64 root = mulq(inverse.r, c->root_m, 15);
        i32 q = shift_to_15_bits(root);
        i32 e = -28 - inverse.k / 2 + c->root_e + 15 + q;
        root = rounding_shift(root, q);
        struct shift last = make_shift(c->static_e - e);
        for (i32 i = 0; i < c->cols; i += 4) {
            v128 m = wasm_i32x4_mul(wasm_v128_load(out + i), wasm_i32x4_splat((i32)root));
            m = shift4(m, last);
            wasm_v128_store(out + i, m);
            top = max4(top, m);
        }
        c->inv_rms[r] = (i32)root;
        c->inv_exp[r] = e - row_exp;
        rows_max = max_i32(rows_max, e - row_exp);
    }
    raise_max(x, c->out_max, max_lane(top));
    raise_max(x, c->rows_max, (u32)(rows_max + ROW_MAX_BIAS));
    set_exponent(x, c->out_exp, c->static_e);
}

KERNEL(scale) {
    struct span rows = share(c->rows, 1, x);
    v128 top = wasm_i32x4_const_splat(0);
    for (i32 r = rows.first; r < rows.last; r++) {
        i32 first = r * c->cols;
        for (i32 i = 0; i < c->cols; i += 8) {
            v128 m = load_narrow(c->x, first + i), w = load_narrow(c->w, i);
            v128 low = wasm_i32x4_extmul_low_i16x8(m, w), high = wasm_i32x4_extmul_high_i16x8(m, w);
            wasm_v128_store(c->out + first + i, low);
            wasm_v128_store(c->out + first + i + 4, high);
            top = max4(max4(top, low), high);
        }
    }
    raise_max(x, c->out_max, max_lane(top));
    set_exponent(x, c->out_exp, exponent(x, c->x_exp) + exponent(x, c->w_exp));
}

INLINE i32 integer_sqrt(i32 v) {
    i32 root = 0;
    while ((i64)(root + 1) * (root + 1) <= v) root++;
    return root;
}

KERNEL(rmsnorm_backward) {
    i32 t_exp = exponent(x, c->dy_exp) + exponent(x, c->w_exp), x_exp = exponent(x, c->xhat_exp);
    i32 head = bit_length((u32)c->cols) + 1;
    i32 mean_exp = t_exp + 15 + x_exp + head + 15 + c->mean_e;
    i32 a = bit_length((u32)integer_sqrt(c->cols) + 2);
    i32 e_max = (i32)x->scalars[c->rows_max] - ROW_MAX_BIAS;
    struct product_shift down = make_product_shift(t_exp + a - mean_exp - x_exp);
    struct shift by_a = make_shift(a), by_15 = make_shift(15);
    i32 *t = (i32 *)x->scratch, *xhat = t + c->cols;
    struct span rows = share(c->rows, 1, x);
    v128 top = wasm_i32x4_const_splat(0);
    for (i32 r = rows.first; r < rows.last; r++) {
        i32 *out = c->out + (u32)r * c->cols;
        v128 dots = wasm_i64x2_const_splat(0);
        unpack_narrow(c->xhat, r * c->cols, c->cols, xhat);
        for (i32 i = 0; i < c->cols; i += 8) {
            v128 dy = load_narrow(c->dy, r * c->cols + i), w = load_narrow(c->w, i);
            wasm_v128_store(t + i, wasm_i32x4_extmul_low_i16x8(dy, w));
            wasm_v128_store(t + i + 4, wasm_i32x4_extmul_high_i16x8(dy, w));
        }
        for (i32 i = 0; i < c->cols; i += 4) {
            v128 high = shift4(wasm_v128_load(t + i), by_15);
            v128 product = wasm_i32x4_mul(high, wasm_v128_load(xhat + i));
            dots = wasm_i64x2_add(dots, wasm_i64x2_extend_low_i32x4(product));
            dots = wasm_i64x2_add(dots, wasm_i64x2_extend_high_i32x4(product));
        }
        i64 dot = wasm_i64x2_extract_lane(dots, 0) + wasm_i64x2_extract_lane(dots, 1);
        i64 mean = mulq(rounding_shift(dot, head), c->mean_m, 15);
        struct product_shift last = make_product_shift(15 + e_max - c->inv_exp[r]);
        v128 means = wasm_i32x4_splat((i32)mean), root = wasm_i32x4_splat(c->inv_rms[r]);
        for (i32 i = 0; i < c->cols; i += 4) {
            v128 part = mulq4(means, wasm_v128_load(xhat + i), down);
            v128 u = wasm_i32x4_sub(shift4(wasm_v128_load(t + i), by_a), part);
            u = mulq4(u, root, last);
            wasm_v128_store(out + i, u);
            top = max4(top, u);
        }
    }
    raise_max(x, c->out_max, max_lane(top));
    set_exponent(x, c->out_exp, t_exp + a + 15 + e_max);
}

/* Parts share the columns. */
KERNEL(rmsnorm_weight_grad) {
    i32 g = bit_length((u32)c->rows);
    struct span cols = share(c->cols, 8, x);
    u32 top = 0;
    for (i32 i = cols.first; i < cols.last; i += 8) {
        v128 sum[4];
        for (i32 j = 0; j < 4; j++) sum[j] = wasm_i64x2_const_splat(0);
        for (i32 r = 0; r < c->rows; r++) {
            v128 dy = load_narrow(c->dy, r * c->cols + i);
            v128 xhat = load_narrow(c->xhat, r * c->cols + i);
            v128 low = wasm_i32x4_extmul_low_i16x8(dy, xhat);
            v128 high = wasm_i32x4_extmul_high_i16x8(dy, xhat);
            sum[0] = wasm_i64x2_add(sum[0], wasm_i64x2_extend_low_i32x4(low));
            sum[1] = wasm_i64x2_add(sum[1], wasm_i64x2_extend_high_i32x4(low));
            sum[2] = wasm_i64x2_add(sum[2], wasm_i64x2_extend_low_i32x4(high));
            sum[3] = wasm_i64x2_add(sum[3], wasm_i64x2_extend_high_i32x4(high));
        }
        i64 total[8];
        for (i32 j = 0; j < 4; j++) wasm_v128_store(total + 2 * j, sum[j]);
        for (i32 j = 0; j < 8; j++) {
            c->out[i + j] = (i32)rounding_shift(total[j], g);
            top = max_u32(top, magnitude(c->out[i + j]));
        }
    }
    raise_max(x, c->out_max, top);
    set_exponent(x, c->out_exp, exponent(x, c->dy_exp) + exponent(x, c->xhat_exp) + g);
}

KERNEL(rope) {
    i32 half = c->head_dim / 2, cols = c->heads * c->head_dim;
    i32 offset = c->moving ? (i32)x->scalars[POSITION] : 0;
    i32 *row = (i32 *)x->scratch;
    struct span rows = share(c->rows, 1, x);
    u32 top = 0;
    for (i32 r = rows.first; r < rows.last; r++) {
        const i32 *angles = c->table + (u32)(r % c->context + offset) * half * 2;
        unpack_narrow(c->x, r * cols, cols, row);
        for (i32 h = 0; h < c->heads; h++) {
            const i32 *first = row + h * c->head_dim, *second = first + half;
            i32 *out = c->out + (u32)r * cols + h * c->head_dim;
            for (i32 j = 0; j < half; j++) {
                i32 cosine = angles[2 * j], sine = c->backward ? -angles[2 * j + 1] : angles[2 * j + 1];
                out[j] = first[j] * cosine - second[j] * sine;
                out[half + j] = first[j] * sine + second[j] * cosine;
                top = max_u32(top, max_u32(magnitude(out[j]), magnitude(out[half + j])));
            }
        }
    }
    raise_max(x, c->out_max, top);
    set_exponent(x, c->out_exp, exponent(x, c->x_exp) - 14);
}
