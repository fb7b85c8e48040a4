/* The exponentials of softmax and cross-entropy, and the reciprocal of their sums. */
#pragma once

#include "common.h"

enum { PROBABILITY_EXPONENT = -14, OCTAVES = 31, LAST_TERM = OCTAVES << 12 /* and on: 0 */ };

struct exponential {
    const i32 *table;    /* 2^(29 - i/4096) */
    const i32 *terms;    /* of every q to LAST_TERM, where they were made */
    v128 high, low;      /* digits of the scale to base 2, below 8 so that t fits 32 bits */
    v128 limit;          /* of a difference: 2^26 in Q16 */
    struct shift to_q16;
    u32 up;              /* to Q16, and on to where the scale's own shift k is at least 15 */
    i32 k;
};

INLINE struct exponential make_exponential(const i32 *table, i32 scale_m, i32 scale_l, i32 scale_e,
                                           i32 x_exp) {
    i32 to_q16 = x_exp + 16, k = max_i32(-scale_e, 15);
    i32 up = min_i32(max_i32(to_q16, 0), 29) + k + scale_e;
    return (struct exponential){
        table, 0, wasm_i32x4_splat(scale_m), wasm_i32x4_splat(scale_l),
        wasm_i32x4_splat(to_q16 > 0 ? (1 << 26) >> min_i32(to_q16, 26) : 1 << 26),
        make_shift(max_i32(-to_q16, 0)), (u32)up, k};
}

/* t = d * scale in base 2, Q16, for d = row maximum - value >= 0 (u32).  `k` is that of the scale:
 * where the compiler knows it, the shifts are constants, which cost a quarter. */
INLINE v128 exponents4(const struct exponential *f, v128 d, i32 k) {
    d = wasm_u32x4_shr(wasm_i32x4_add(d, f->to_q16.half), f->to_q16.right);
    d = wasm_u32x4_min(wasm_v128_and(d, f->to_q16.mask), f->limit);
    d = wasm_i32x4_shl(d, f->up);
    return wasm_i32x4_add(mulq4(d, f->high, make_product_shift(k)),
                          mulq4(d, f->low, make_product_shift(k + 14)));
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

INLINE v128 quantised(v128 t) {
    t = wasm_i32x4_shr(wasm_i32x4_add(t, wasm_i32x4_const_splat(8)), 4);
    return wasm_i32x4_min(t, wasm_i32x4_const_splat(LAST_TERM));
}

INLINE v128 quantised_at(const struct exponential *f, v128 tops, const i32 *m, i32 k) {
    return quantised(exponents4(f, wasm_i32x4_sub(tops, wasm_v128_load(m)), k));
}

/* The next four exponents are computed while four terms are looked up: a tenth faster than either
 * after the other. */
INLINE u64 terms_with(const struct exponential *f, const i32 *m, i32 count, i32 top, i32 *terms,
                      i32 k, i32 made) {
    v128 tops = wasm_i32x4_splat(top), next = quantised_at(f, tops, m, k);
    u64 sum = 0;
    i32 i = 0;
    for (; i + 4 <= count; i += 4) {
        v128 q = next;
        if (i + 4 < count) next = quantised_at(f, tops, m + i + 4, k);
        u32 t0 = term_of(f, wasm_u32x4_extract_lane(q, 0), made);
        u32 t1 = term_of(f, wasm_u32x4_extract_lane(q, 1), made);
        u32 t2 = term_of(f, wasm_u32x4_extract_lane(q, 2), made);
        u32 t3 = term_of(f, wasm_u32x4_extract_lane(q, 3), made);
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
    if (f->k == 15) return (i64)terms_with(f, m, count, top, terms, 15, made);
    return (i64)terms_with(f, m, count, top, terms, f->k, made);
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
