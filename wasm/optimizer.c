/* Gradient norm, AdamW in binary32, weights and their narrowing, initial weights.
 *
 * WebAssembly's f32 and f64 operations are IEEE 754, round to nearest even, denormals kept, and
 * are never fused: each one below is one correctly rounded operation of the definition. */
#include "common.h"

enum { SQUARES_BLOCK = 2048 };

KERNEL(sum_squares) {
    i32 bits = nearest_shift(x->scalars[c->x_max]);
    struct shift shift = make_shift(bits);
    struct span s = share(c->count, SQUARES_BLOCK, x);
    u32 limbs[4] = {0, 0, 0, 0};
    for (i32 block = s.first; block < s.last; block += SQUARES_BLOCK) {
        i32 last = min_i32(block + SQUARES_BLOCK, s.last), i = block;
        v128 sums = wasm_i64x2_const_splat(0);
        for (; i + 4 <= last; i += 4) {
            v128 m = shift4(wasm_v128_load(c->x + i), shift);
            v128 square = wasm_i32x4_mul(m, m);
            sums = wasm_i64x2_add(sums, wasm_u64x2_extend_low_u32x4(square));
            sums = wasm_i64x2_add(sums, wasm_u64x2_extend_high_u32x4(square));
        }
        u64 sum = (u64)wasm_i64x2_extract_lane(sums, 0) + (u64)wasm_i64x2_extract_lane(sums, 1);
        for (; i < last; i++) {
            i64 m = rounding_shift(c->x[i], bits);
            sum += (u64)(m * m);
        }
        for (i32 limb = 0; limb < 4; limb++) limbs[limb] += (sum >> (16 * limb)) & 0xffff;
    }
    for (i32 limb = 0; limb < 4; limb++) add_shared(&c->record[c->offset + limb], limbs[limb]);
    c->record[c->offset + 4] = (u32)(2 * (exponent(x, c->x_exp) + bits));
}

INLINE v128 scalar4(const struct context *x, i32 word) {
    return wasm_v128_load32_splat(&x->scalars[word]);
}

/* 2^e, exact, for |e| <= 1022; beyond it the nearest such power, which rounds alike. */
INLINE double power_of_two(i32 e) {
    u64 bits = (u64)(min_i32(max_i32(e, -1022), 1023) + 1023) << 52;
    double value;
    __builtin_memcpy(&value, &bits, 8);
    return value;
}

/* Four i32 times 2^e in binary32, one rounding: the product is exact in binary64. */
INLINE v128 scale4(v128 m, v128 power) {
    v128 low = wasm_f64x2_mul(wasm_f64x2_convert_low_i32x4(m), power);
    v128 high = wasm_f64x2_mul(
        wasm_f64x2_convert_low_i32x4(wasm_i32x4_shuffle(m, m, 2, 3, 2, 3)), power);
    return wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(low),
                              wasm_f32x4_demote_f64x2_zero(high), 0, 1, 4, 5);
}

struct adam {
    v128 power, clip, bias_1, bias_2, lr;
    i32 decay;
};

INLINE v128 adam_step(const struct adam *s, u32 *p, u32 *m, u32 *v, v128 gradient) {
    v128 g = wasm_f32x4_mul(scale4(gradient, s->power), s->clip);
    v128 first = wasm_f32x4_add(wasm_f32x4_mul(wasm_v128_load(m), wasm_f32x4_const_splat(0.9f)),
                                wasm_f32x4_mul(g, wasm_f32x4_const_splat(0.1f)));
    v128 second = wasm_f32x4_add(
        wasm_f32x4_mul(wasm_v128_load(v), wasm_f32x4_const_splat(0.95f)),
        wasm_f32x4_mul(wasm_f32x4_mul(g, g), wasm_f32x4_const_splat(0.05f)));
    v128 root = wasm_f32x4_sqrt(wasm_f32x4_mul(second, s->bias_2));
    v128 update = wasm_f32x4_div(wasm_f32x4_mul(first, s->bias_1),
                                 wasm_f32x4_add(root, wasm_f32x4_const_splat(1e-10f)));
    v128 weight = wasm_v128_load(p);
    if (s->decay)
        update = wasm_f32x4_add(update, wasm_f32x4_mul(weight, wasm_f32x4_const_splat(0.1f)));
    weight = wasm_f32x4_sub(weight, wasm_f32x4_mul(update, s->lr));
    wasm_v128_store(m, first);
    wasm_v128_store(v, second);
    wasm_v128_store(p, weight);
    return wasm_v128_and(weight, wasm_i32x4_const_splat(0x7fffffff));
}

KERNEL(adamw) {
    struct adam s = {wasm_f64x2_splat(power_of_two(exponent(x, c->g_exp))), scalar4(x, CLIP),
                     scalar4(x, BIAS_1), scalar4(x, BIAS_2), scalar4(x, LR), c->decay};
    struct span part = share(c->count, 4, x);
    v128 top = wasm_i32x4_const_splat(0);
    i32 i = part.first;
    for (; i + 4 <= part.last; i += 4)
        top = wasm_u32x4_max(top, adam_step(&s, c->p + i, c->m + i, c->v + i,
                                            wasm_v128_load(c->g + i)));
    if (i < part.last) {
        u32 rest = (u32)(part.last - i), p[4] = {0}, m[4] = {0}, v[4] = {0};
        i32 g[4] = {0};
        for (u32 j = 0; j < rest; j++)
            p[j] = c->p[i + j], m[j] = c->m[i + j], v[j] = c->v[i + j], g[j] = c->g[i + j];
        top = wasm_u32x4_max(top, adam_step(&s, p, m, v, wasm_v128_load(g)));
        for (u32 j = 0; j < rest; j++) c->p[i + j] = p[j], c->m[i + j] = m[j], c->v[i + j] = v[j];
    }
    raise_max(x, c->p_max, max_lane(top));
}

KERNEL(weight_max) {
    struct span s = share(c->count, 4, x);
    u32 top = 0;
    for (i32 i = s.first; i < s.last; i++) top = max_u32(top, c->p[i] & 0x7fffffff);
    raise_max(x, c->p_max, top);
}

/* Mantissa (below 2^24) and biased exponent (>= 1) of a binary32 magnitude. */
INLINE u32 mantissa_of(u32 bits) { return (bits & 0x7fffff) | (bits >> 23 ? 1 << 23 : 0); }
INLINE i32 biased_of(u32 bits) { return max_i32((i32)(bits >> 23), 1); }

INLINE i32 narrow_weight(u32 bits, i32 e) {
    i32 m = (i32)mantissa_of(bits & 0x7fffffff);
    return (i32)rounding_shift(bits >> 31 ? -m : m, e + 150 - biased_of(bits & 0x7fffffff));
}

/* floor(w * 2^-e + 1/2) of four binary32 numbers, |result| < 2^22, by `scale` = 2^-e.  The product is
 * exact (or far below 1), and so is its distance from its floor wherever that is at most 1/2. */
INLINE v128 narrow_weights4(v128 w, v128 scale) {
    const v128 magic = wasm_f32x4_const_splat(12582912.0f); /* its unit in the last place is 1 */
    v128 value = wasm_f32x4_mul(w, scale), floor = wasm_f32x4_floor(value);
    v128 is_up = wasm_f32x4_ge(wasm_f32x4_sub(value, floor), wasm_f32x4_const_splat(0.5f));
    v128 whole = wasm_i32x4_sub(wasm_f32x4_add(floor, magic), magic);
    return wasm_i32x4_sub(whole, is_up);
}

KERNEL(narrow_weights) {
    u32 top = x->scalars[c->p_max];
    i32 e = biased_of(top) - 150 + nearest_shift(mantissa_of(top));
    struct span s = share(c->count, 8, x);
    i32 has_scale = e > -127 && e < 127 && top < 0x7f800000; /* 2^-e is a normal number */
    v128 scale = wasm_i32x4_splat((127 - e) << 23);
    for (i32 i = s.first; i < s.last; i += 8) {
        i32 m[8];
        if (has_scale) {
            wasm_v128_store(m, narrow_weights4(wasm_v128_load(c->p + i), scale));
            wasm_v128_store(m + 4, narrow_weights4(wasm_v128_load(c->p + i + 4), scale));
        } else {
            for (i32 j = 0; j < 8; j++) m[j] = narrow_weight(c->p[i + j], e);
        }
        store_narrow(c->out, i, pack16(wasm_v128_load(m), wasm_v128_load(m + 4)));
    }
    set_exponent(x, c->out_exp, e);
}

KERNEL(init_weights) {
    struct key key = make_key((u32)c->key_a, (u32)c->key_b);
    v128 low_half = wasm_i32x4_const_splat(0xffff);
    struct span s = share(c->count, 4, x);
    for (i32 i = s.first; i < s.last; i += 4) {
        v128 a, b;
        arx4(i, key, &a, &b);
        v128 sum = wasm_i32x4_add(
            wasm_i32x4_add(wasm_v128_and(a, low_half), wasm_u32x4_shr(a, 16)),
            wasm_i32x4_add(wasm_v128_and(b, low_half), wasm_u32x4_shr(b, 16)));
        sum = wasm_i32x4_sub(sum, wasm_i32x4_const_splat(131070));
        v128 value = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum),
                                    wasm_i32x4_splat(c->scale_bits));
        u32 four[4];
        wasm_v128_store(four, value);
        for (i32 j = 0; j < 4 && i + j < s.last; j++) c->p[i + j] = four[j];
    }
}
