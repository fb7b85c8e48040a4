/* What every kernel uses: integer types, vectors, shares of the work, shifts, products, formats.
 *
 * The kernels mirror daisychain/kernels/oracle bit for bit.  Signed arithmetic wraps (-fwrapv) and
 * right shifts of signed numbers are arithmetic.  WebAssembly has 64-bit integers, so what the
 * shaders split into digits or carry pairs is a plain i64 here; neither changes a bit.
 */
#pragma once

#include <stdint.h>
#include <wasm_simd128.h>

typedef uint8_t u8;
typedef int16_t i16;
typedef uint16_t u16;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef v128_t v128;

#include "calls.h"

/* Where a kernel runs: every kernel sees the scalars, has scratch memory of its own and does the
 * share `part` of `parts` of the work.  Shares never overlap, so they may run at the same time. */
struct context {
    u32 *scalars;
    u8 *scratch;
    i32 part, parts;
};

#define KERNEL(name)                                                                     \
    __attribute__((export_name(#name))) void name(const struct name##_call *restrict c, \
                                                  const struct context *restrict x)
#define INLINE static inline __attribute__((always_inline))

/* Words of scalars that the host writes (catalog.Step). */
enum { KEY_A, KEY_B, LR, BIAS_1, BIAS_2, CLIP, POSITION, MICRO_BATCH };

enum { NARROW_MAX = 32639 };

/* ------------------------------------------------------------------ shares of the work */
struct span {
    i32 first, last;
};

/* This part's share of [0, count), in whole units (but for the end). */
INLINE struct span share(i32 count, i32 unit, const struct context *x) {
    i64 units = (count + (i64)unit - 1) / unit;
    i64 first = units * x->part / x->parts * unit, last = units * (x->part + 1) / x->parts * unit;
    return (struct span){(i32)(first < count ? first : count), (i32)(last < count ? last : count)};
}

INLINE i32 min_i32(i32 a, i32 b) { return a < b ? a : b; }
INLINE i32 max_i32(i32 a, i32 b) { return a > b ? a : b; }
INLINE i64 min_i64(i64 a, i64 b) { return a < b ? a : b; }
INLINE u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
INLINE u32 magnitude(i32 v) { return v < 0 ? -(u32)v : (u32)v; }

/* ------------------------------------------------------------------ scalars */
INLINE i32 exponent(const struct context *x, i32 word) { return (i32)x->scalars[word]; }

/* All parts store the same value. */
INLINE void set_exponent(const struct context *x, i32 word, i32 value) {
    x->scalars[word] = (u32)value;
}

INLINE void raise_max(const struct context *x, i32 word, u32 value) {
    u32 *target = &x->scalars[word];
#ifdef SHARED_MEMORY
    u32 seen = __atomic_load_n(target, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(target, &seen, value, 1, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
#else
    *target = max_u32(*target, value);
#endif
}

/* Adds to a word that several parts add to. */
INLINE void add_shared(u32 *target, u32 value) {
#ifdef SHARED_MEMORY
    __atomic_fetch_add(target, value, __ATOMIC_RELAXED);
#else
    *target += value;
#endif
}

/* ------------------------------------------------------------------ shifts and products */
INLINE i32 bit_length(u64 v) { return v ? 64 - __builtin_clzll(v) : 0; }

/* (v + 2^(s-1)) >> s, half up; a left shift for s < 0; 0 for s > 30. */
INLINE i64 rounding_shift(i64 v, i32 s) {
    if (s > 30) return 0;
    if (s <= 0) return v << (-s < 31 ? -s : 31);
    return (v + ((i64)1 << (s - 1))) >> s;
}

/* The same on four i32 whose result fits, for one shift. */
struct shift {
    v128 half, mask;
    u32 left, right;
};

INLINE struct shift make_shift(i32 s) {
    return (struct shift){wasm_i32x4_splat(s > 0 && s <= 30 ? 1 << (s - 1) : 0),
                          wasm_i32x4_splat(s > 30 ? 0 : -1), s < 0 ? (u32)(-s < 31 ? -s : 31) : 0,
                          s > 0 && s <= 30 ? (u32)s : 0};
}

INLINE v128 shift4(v128 v, struct shift s) {
    v = wasm_i32x4_add(wasm_i32x4_shl(v, s.left), s.half);
    return wasm_v128_and(wasm_i32x4_shr(v, s.right), s.mask);
}

/* round(v*y / 2^k), half up; |v| <= 2^30 - 2^22, |y| <= 32639, k >= 0; 0 for k > 45. */
INLINE i64 mulq(i64 v, i64 y, i32 k) {
    k = min_i32(k, 60);
    return (v * y + (((i64)1 << k) >> 1)) >> k;
}

/* The same on four i32 where the result fits, by 16-bit products: v = high*2^15 + low.
 *   k > 15: (high*y + (low*y >> 15) + 2^(k-16)) >> (k-15);
 *   else:   (high*y << (15-k)) + ((low*y + half) >> k). */
struct product_shift {
    i32 k;
    u32 up, down;
    v128 half;
};

INLINE struct product_shift make_product_shift(i32 k) {
    k = min_i32(k, 46);
    return (struct product_shift){k, k > 15 ? 0 : (u32)(15 - k), k > 15 ? (u32)(k - 15) : (u32)k,
                                  wasm_i32x4_splat(k > 15 ? 1 << (k - 16) : (1 << k) >> 1)};
}

INLINE v128 mulq4(v128 v, v128 y, struct product_shift s) {
    v128 high = wasm_i32x4_shr(wasm_i32x4_add(v, wasm_i32x4_const_splat(1 << 14)), 15);
    v128 low = wasm_i32x4_sub(v, wasm_i32x4_shl(high, 15));
    y = wasm_v128_and(y, wasm_i32x4_const_splat(0xffff)); /* the other half of each dot is 0 */
    high = wasm_i32x4_dot_i16x8(high, y);
    low = wasm_i32x4_dot_i16x8(low, y);
    if (s.k > 15) {
        v128 sum = wasm_i32x4_add(wasm_i32x4_add(high, s.half), wasm_i32x4_shr(low, 15));
        return wasm_i32x4_shr(sum, s.down);
    }
    low = wasm_i32x4_shr(wasm_i32x4_add(low, s.half), s.down);
    return wasm_i32x4_add(wasm_i32x4_shl(high, s.up), low);
}

/* v * (high + low * 2^-14) / 2^k, each digit rounded on its own. */
struct digits {
    v128 high, low;
    struct product_shift high_shift, low_shift;
};

INLINE struct digits make_digits(i32 high, i32 low, i32 k) {
    return (struct digits){wasm_i32x4_splat(high), wasm_i32x4_splat(low), make_product_shift(k),
                           make_product_shift(k + 14)};
}

INLINE v128 mul_digits4(v128 v, const struct digits *d) {
    return wasm_i32x4_add(mulq4(v, d->high, d->high_shift), mulq4(v, d->low, d->low_shift));
}

/* The least s >= 0 with (maximum + half) >> s <= NARROW_MAX. */
INLINE i32 nearest_shift(u32 maximum) {
    i32 s = 0;
    while ((maximum + (u64)((1 << s) >> 1)) >> s > NARROW_MAX) s++;
    return s;
}

/* The least s >= 0 with (maximum + 2^s - 1) >> s <= NARROW_MAX. */
INLINE i32 stochastic_shift(u32 maximum) {
    i32 s = 0;
    while ((maximum + ((u64)1 << s) - 1) >> s > NARROW_MAX) s++;
    return s;
}

/* ------------------------------------------------------------------ narrow numbers
 * 16 bytes hold 8 values: first their hi bytes, then their lo bytes. */

/* The 8 values at element i (a multiple of 8) as i16x8. */
INLINE v128 load_narrow(const u8 *p, i32 i) {
    v128 v = wasm_v128_load(p + 2 * (u32)i);
    v128 high = wasm_i8x16_shuffle(wasm_i32x4_const_splat(0), v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                   5, 21, 6, 22, 7, 23);
    return wasm_i16x8_add(high, wasm_i16x8_extend_high_i8x16(v));
}

INLINE void store_narrow(u8 *p, i32 i, v128 m) {
    v128 high = wasm_i16x8_shr(wasm_i16x8_add(m, wasm_i16x8_const_splat(128)), 8);
    v128 low = wasm_i16x8_shr(wasm_i16x8_shl(m, 8), 8);
    wasm_v128_store(p + 2 * (u32)i, wasm_i8x16_narrow_i16x8(high, low));
}

/* Two i32x4 within +-32767 as i16x8. */
INLINE v128 pack16(v128 low, v128 high) { return wasm_i16x8_narrow_i32x4(low, high); }

INLINE i32 narrow_at(const u8 *p, i32 i) {
    const u8 *eight = p + 2 * (u32)(i & ~7);
    return (int8_t)eight[i & 7] * 256 + (int8_t)eight[8 + (i & 7)];
}

/* The values of n elements from element `first` on (both multiples of 8), as i32. */
INLINE void unpack_narrow(const u8 *p, i32 first, i32 n, i32 *out) {
    for (i32 i = 0; i < n; i += 8) {
        v128 m = load_narrow(p, first + i);
        wasm_v128_store(out + i, wasm_i32x4_extend_low_i16x8(m));
        wasm_v128_store(out + i + 4, wasm_i32x4_extend_high_i16x8(m));
    }
}

/* ------------------------------------------------------------------ maxima of vectors */
INLINE v128 max4(v128 top, v128 v) { return wasm_u32x4_max(top, wasm_i32x4_abs(v)); }

INLINE i32 sum_lanes(v128 v) {
    return wasm_i32x4_extract_lane(v, 0) + wasm_i32x4_extract_lane(v, 1) +
           wasm_i32x4_extract_lane(v, 2) + wasm_i32x4_extract_lane(v, 3);
}

INLINE u32 max_lane(v128 top) {
    u32 a = max_u32(wasm_u32x4_extract_lane(top, 0), wasm_u32x4_extract_lane(top, 1));
    return max_u32(a, max_u32(wasm_u32x4_extract_lane(top, 2), wasm_u32x4_extract_lane(top, 3)));
}

/* ------------------------------------------------------------------ random bits (numbers.random_bits) */
struct key {
    v128 a, b; /* the key's words, the first one plus 0..3 */
};

INLINE struct key make_key(u32 a, u32 b) {
    v128 firsts = wasm_i32x4_add(wasm_i32x4_splat((i32)a), wasm_i32x4_const(0, 1, 2, 3));
    return (struct key){firsts, wasm_i32x4_splat((i32)b)};
}

INLINE v128 rotate4(v128 v, i32 r) {
    return wasm_v128_or(wasm_i32x4_shl(v, r), wasm_u32x4_shr(v, 32 - r));
}

/* Blocks of four counters from `first` on: their words a and b. */
INLINE void arx4(i32 first, struct key key, v128 *word_a, v128 *word_b) {
    static const i32 rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    v128 a = wasm_i32x4_add(key.a, wasm_i32x4_splat(first));
    v128 b = wasm_v128_xor(rotate4(a, 16), key.b);
#pragma clang loop unroll(full)
    for (i32 i = 0; i < 8; i++) {
        a = wasm_i32x4_add(a, b);
        b = wasm_v128_xor(rotate4(b, rotations[i]), a);
    }
    *word_a = a;
    *word_b = b;
}

INLINE struct key tensor_key(const struct context *x, i32 tensor_id) {
    v128 a, b;
    arx4(tensor_id, make_key(x->scalars[KEY_A], x->scalars[KEY_B]), &a, &b);
    return make_key(wasm_u32x4_extract_lane(a, 0), wasm_u32x4_extract_lane(b, 0));
}

/* Random integers in [0, 2^bits) of elements i..i+7 (i a multiple of 2): the top bits of the
 * words of blocks i/2..i/2+3. */
INLINE void random8(struct key key, i32 i, i32 bits, v128 *low, v128 *high) {
    v128 a, b;
    arx4(i >> 1, key, &a, &b);
    v128 mask = wasm_i32x4_splat(bits ? -1 : 0);
    a = wasm_v128_and(wasm_u32x4_shr(a, (u32)(32 - bits)), mask);
    b = wasm_v128_and(wasm_u32x4_shr(b, (u32)(32 - bits)), mask);
    *low = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5);
    *high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
}
