/* SwiGLU, forward and backward. */
#include "common.h"

/* |z| in Q12 below 16: the exponent's shift and limit. */
struct look_up {
    struct shift down;
    v128 limit;
    u32 up;
};

INLINE struct look_up make_look_up(i32 z_exp) {
    i32 up = z_exp + 12, left = min_i32(max_i32(up, 0), 16);
    return (struct look_up){make_shift(max_i32(-up, 0)), wasm_i32x4_splat(65535 >> left), (u32)left};
}

/* A table of 1,026 values at |z| for four z, its step 1/64 interpolated by 6 bits;
 * f(-z) = 1 - f(z), Q14. */
INLINE v128 look_up4(const struct look_up *s, const i32 *table, v128 z) {
    v128 t = shift4(wasm_i32x4_abs(z), s->down);
    /* A larger t << up than 65535 is 65535, the largest index with the largest fraction. */
    v128 over = wasm_i32x4_gt(t, s->limit);
    t = wasm_i32x4_shl(wasm_i32x4_min(t, s->limit), s->up);
    t = wasm_v128_or(t, wasm_v128_and(over, wasm_i32x4_const_splat(65535)));
    v128 i = wasm_u32x4_shr(t, 6);
    const i32 *at0 = table + wasm_i32x4_extract_lane(i, 0), *at1 = table + wasm_i32x4_extract_lane(i, 1);
    const i32 *at2 = table + wasm_i32x4_extract_lane(i, 2), *at3 = table + wasm_i32x4_extract_lane(i, 3);
    v128 a = wasm_v128_load64_lane(at1, wasm_v128_load64_zero(at0), 1);
    v128 b = wasm_v128_load64_lane(at3, wasm_v128_load64_zero(at2), 1);
    v128 left = wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), right = wasm_i32x4_shuffle(a, b, 1, 3, 5, 7);
    v128 slope = wasm_i32x4_dot_i16x8(wasm_i32x4_sub(right, left),
                                      wasm_v128_and(t, wasm_i32x4_const_splat(63)));
    v128 f = wasm_i32x4_add(
        left, wasm_i32x4_shr(wasm_i32x4_add(slope, wasm_i32x4_const_splat(32)), 6));
    v128 negative = wasm_i32x4_shr(z, 31); /* -1: 16384 - f = 16384 + ~f + 1 */
    v128 one = wasm_v128_and(negative, wasm_i32x4_const_splat(16385));
    return wasm_i32x4_add(wasm_v128_xor(f, negative), one);
}

/* Four i32 within +-32767 times four such. */
INLINE v128 mul4(v128 a, v128 b) {
    return wasm_i32x4_dot_i16x8(a, wasm_v128_and(b, wasm_i32x4_const_splat(0xffff)));
}

/* z * sigmoid(z) at z's own exponent. */
INLINE v128 silu4(const struct look_up *s, const i32 *sigmoid, v128 z) {
    return shift4(mul4(z, look_up4(s, sigmoid, z)), make_shift(14));
}

INLINE v128 low4(v128 m) { return wasm_i32x4_extend_low_i16x8(m); }
INLINE v128 high4(v128 m) { return wasm_i32x4_extend_high_i16x8(m); }

KERNEL(swiglu) {
    i32 z_exp = exponent(x, c->z_exp);
    struct look_up look = make_look_up(z_exp);
    struct span s = share(c->count, 8, x);
    v128 top = wasm_i32x4_const_splat(0);
    for (i32 i = s.first; i < s.last; i += 8) {
        v128 z = load_narrow(c->z, i), u = load_narrow(c->u, i);
        v128 low = mul4(silu4(&look, c->sigmoid, low4(z)), low4(u));
        v128 high = mul4(silu4(&look, c->sigmoid, high4(z)), high4(u));
        wasm_v128_store(c->out + i, low);
        wasm_v128_store(c->out + i + 4, high);
        top = max4(max4(top, low), high);
    }
    raise_max(x, c->out_max, max_lane(top));
    set_exponent(x, c->out_exp, z_exp + exponent(x, c->u_exp));
}

struct swiglu_tops {
    v128 z, u;
};

INLINE void backward4(const struct swiglu_backward_call *c, const struct look_up *s, i32 i, v128 dy,
                      v128 z, v128 u, struct swiglu_tops *top) {
    v128 slope = look_up4(s, c->slope, z);
    v128 dz = mulq4(mul4(dy, u), slope, make_product_shift(15));
    v128 du = mul4(dy, silu4(s, c->sigmoid, z));
    wasm_v128_store(c->dz + i, dz);
    wasm_v128_store(c->du + i, du);
    top->z = max4(top->z, dz);
    top->u = max4(top->u, du);
}

KERNEL(swiglu_backward) {
    i32 y_exp = exponent(x, c->dy_exp), z_exp = exponent(x, c->z_exp);
    struct look_up look = make_look_up(z_exp);
    struct span s = share(c->count, 8, x);
    struct swiglu_tops top = {wasm_i32x4_const_splat(0), wasm_i32x4_const_splat(0)};
    for (i32 i = s.first; i < s.last; i += 8) {
        v128 dy = load_narrow(c->dy, i), z = load_narrow(c->z, i), u = load_narrow(c->u, i);
        backward4(c, &look, i, low4(dy), low4(z), low4(u), &top);
        backward4(c, &look, i + 4, high4(dy), high4(z), high4(u), &top);
    }
    raise_max(x, c->dz_max, max_lane(top.z));
    raise_max(x, c->du_max, max_lane(top.u));
    set_exponent(x, c->dz_exp, y_exp + exponent(x, c->u_exp) + 1);
    set_exponent(x, c->du_exp, y_exp + z_exp);
}
