/* The exponentials of softmax and cross-entropy, and the reciprocal of their sums. */
#pragma once

#include "common.h"

enum { PROBABILITY_EXPONENT = -14, OCTAVES = 31, LAST_TERM = OCTAVES << 12 /* and on: 0 */ };

/* The exponent of d = row maximum - value >= 0 (u32) is v * scale, v = d in Q16 and on to where the
 * scale's own shift k is at least 15: v = min((d + half) >> right & keep, limit) << left. */
struct exponential {
    const i32 *table; /* 2^(29 - i/4096) */
    const i32 *terms; /* of every q to LAST_TERM, where they were made */
    v128 high, low;   /* digits of the scale to base 2, below 8 so that t fits 32 bits */
    v128 half, keep, limit;
    u32 right, left;
    i32 k;
};

INLINE struct exponential make_exponential(const i32 *table, i32 scale_m, i32 scale_l, i32 scale_e,
                                           i32 x_exp) {
    i32 right = max_i32(-(x_exp + 16), 0), up = max_i32(x_exp + 16, 0), k = max_i32(-scale_e, 15);
    i32 keep = -1, limit = (1 << 26) >> min_i32(up, 26), left = min_i32(up, 29) + k + scale_e;
    struct shift to_q16 = make_shift(right);
    if (right >= left) { /* one shift does both */
        keep = -(1 << left);
        limit <<= left;
        right -= left;
        left = 0;
    }
    return (struct exponential){table,
                                0,
                                wasm_i32x4_splat(scale_m),
                                wasm_i32x4_splat(scale_l),
                                to_q16.half,
                                wasm_v128_and(to_q16.mask, wasm_i32x4_splat(keep)),
                                wasm_i32x4_splat(limit),
                                (u32)right,
                                (u32)left,
                                k};
}

/* t in base 2, Q16, for d + half.  `k` and `left` are those of `f`: where the compiler knows them,
 * the shifts are constants, which cost a quarter. */
INLINE v128 exponents4(const struct exponential *f, v128 d, i32 k, u32 left) {
    d = wasm_v128_and(wasm_u32x4_shr(d, f->right), f->keep);
    d = wasm_i32x4_shl(wasm_u32x4_min(d, f->limit), left);
    return wasm_i32x4_add(mulq4(d, f->high, make_product_shift(k)),
                          mulq4(d, f->low, make_product_shift(k + 14)));
}

/* t of one d. */
INLINE i32 exponent_of(const struct exponential *f, i32 d) {
    v128 four = wasm_i32x4_add(wasm_i32x4_splat(d), f->half);
    return wasm_i32x4_extract_lane(exponents4(f, four, f->k, f->left), 0);
}

/* Makes all terms, which then are only looked up: 2 cycles less for each of a call's many values. */
INLINE void make_terms(struct exponential *f, i32 *terms) {
    for (i32 octave = 0; octave < OCTAVES; octave++)
        for (i32 i = 0; i < 4096; i += 4) {
            v128 twice = wasm_i32x4_shl(wasm_v128_load(f->table + i), 1);
            v128 term = wasm_i32x4_add(wasm_u32x4_shr(twice, octave), wasm_i32x4_const_splat(1));
            wasm_v128_store(terms + (octave << 12) + i, wasm_u32x4_shr(term, 1));
        }
    terms[LAST_TERM] = 0;
    f->terms = terms;
}

/* 2^-t in Q29 for q = t in Q12, rounded half up. */
INLINE u32 term_of(const struct exponential *f, u32 q, i32 made) {
    if (made) return (u32)f->terms[q];
    u32 twice = 2 * (u32)f->table[q & 4095];
    return ((twice >> (q >> 12)) + 1) >> 1;
}

/* q of four values; `tops` is the row's maximum + half. */
INLINE v128 quantised(const struct exponential *f, v128 tops, const i32 *m, i32 k, u32 left) {
    v128 t = exponents4(f, wasm_i32x4_sub(tops, wasm_v128_load(m)), k, left);
    t = wasm_i32x4_shr(wasm_i32x4_add(t, wasm_i32x4_const_splat(8)), 4);
    return wasm_i32x4_min(t, wasm_i32x4_const_splat(LAST_TERM));
}

/* The next four exponents are computed while four terms are looked up: a tenth faster than either
 * after the other.  Two lanes leave a vector together, in fewer instructions than one by one. */
INLINE u64 terms_with(const struct exponential *f, const i32 *m, i32 count, i32 top, i32 *terms,
                      i32 k, u32 left, i32 made) {
    v128 tops = wasm_i32x4_add(wasm_i32x4_splat(top), f->half);
    v128 next = quantised(f, tops, m, k, left);
    u64 sum = 0;
    i32 i = 0;
    for (; i + 4 <= count; i += 4) {
        u64 q01 = (u64)wasm_i64x2_extract_lane(next, 0);
        u64 q23 = (u64)wasm_i64x2_extract_lane(next, 1);
        if (i + 4 < count) next = quantised(f, tops, m + i + 4, k, left);
        u32 t0 = term_of(f, (u32)q01, made), t1 = term_of(f, (u32)(q01 >> 32), made);
        u32 t2 = term_of(f, (u32)q23, made), t3 = term_of(f, (u32)(q23 >> 32), made);
        terms[i] = (i32)t0, terms[i + 1] = (i32)t1, terms[i + 2] = (i32)t2, terms[i + 3] = (i32)t3;
        sum += (u64)t0 + t1 + t2 + t3;
    }
    u32 last[4];
    wasm_v128_store(last, next);
    for (i32 j = 0; i < count; i++, j++) sum += (u32)(terms[i] = (i32)term_of(f, last[j], made));
    for (; i % 8; i++) terms[i] = 0;
    return sum;
}

/* terms[i] = 2^-t of each of `count` > 0 values, Q29, with zeros up to a multiple of 8; returns
 * their sum.  Reads on to a multiple of 4 values, within the row. */
INLINE i64 exponential_terms(const struct exponential *f, const i32 *m, i32 count, i32 top,
                             i32 *terms, i32 made) {
    if (f->k == 15 && !f->left) return (i64)terms_with(f, m, count, top, terms, 15, 0, made);
    return (i64)terms_with(f, m, count, top, terms, f->k, f->left, made);
}

INLINE i32 row_top(const i32 *m, i32 count) {
    i32 top = m[0], i = 0;
    v128 tops = wasm_i32x4_splat(top);
    for (; i + 4 <= count; i += 4) tops = wasm_i32x4_max(tops, wasm_v128_load(m + i));
    for (; i < count; i++) top = max_i32(top, m[i]);
    tops = wasm_i32x4_max(tops, wasm_i32x4_shuffle(tops, tops, 2, 3, 0, 1));
    i32 left = wasm_i32x4_extract_lane(tops, 0), right = wasm_i32x4_extract_lane(tops, 1);
    return max_i32(top, max_i32(left, right));
}

/* 2^(27+bits)/z in two 14-bit digits, bits = bit length of z; relative error 2^-24. */
struct reciprocal {
    i32 high, low, bits;
};

INLINE struct reciprocal reciprocal_of(i64 z) {
    i32 b = bit_length((u64)z);
    i64 z29 = b > 29 ? z >> (b - 29) : z << (29 - b);
    i32 r0 = (1 << 28) / (i32)(z29 >> 14);
    i64 rho = (1 << 28) - mulq(z29, r0, 14);
    i64 r = ((i64)r0 << 14) + rounding_shift(r0 * rounding_shift(rho, 2), 12);
    i64 high = rounding_shift(r, 14);
    return (struct reciprocal){(i32)high, (i32)(r - (high << 14)), b};
}

/* To multiply by r / 2^(k+14). */
INLINE struct digits reciprocal_digits(struct reciprocal r, i32 k) {
    return make_digits(r.high, r.low, k);
}
