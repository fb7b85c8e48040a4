/* The arithmetic of the integer all-reduce, row by row; daisychain/cluster/exchange.py defines it.
 *
 * All numbers lie in one memory that the caller lays out.  Signed arithmetic wraps (-fwrapv) and
 * right shifts are arithmetic. */
#include <stdint.h>

typedef int8_t i8;
typedef uint8_t u8;
typedef int16_t i16;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;

#define EXPORT(name) __attribute__((export_name(#name)))
#define INLINE static inline __attribute__((always_inline))

enum { NO_EXPONENT = -128, LOW_EXPONENT = -127, HIGH_EXPONENT = 127, RESIDUAL_BITS = 15 };
enum { NARROW_MAX = 32639 }; /* daisychain/numbers/formats.py */
enum mode { INT8, INT4, INT16 };

INLINE i32 bit_length(u32 v) { return v ? 32 - __builtin_clz(v) : 0; }
INLINE i32 min_i32(i32 a, i32 b) { return a < b ? a : b; }
INLINE i32 max_i32(i32 a, i32 b) { return a > b ? a : b; }
INLINE i32 clip(i32 v, i32 limit) { return max_i32(-limit, min_i32(limit, v)); }
INLINE u32 magnitude(i32 v) { return v < 0 ? -(u32)v : (u32)v; }

/* rounding_shift by one amount for a whole row: loops over it have no branch and no 64-bit number, so
 * they become SIMD instructions.  floor((v + 2^(s-1)) / 2^s) is v >> s plus bit s - 1 of v. */
typedef struct { i32 left, right, half, one, keep; } shift;

INLINE shift shift_by(i32 s) {
    if (s > 30) return (shift){0, 0, 0, 0, 0};
    if (s <= 0) return (shift){-s & 31, 0, 0, 0, -1};
    return (shift){0, s, s - 1, 1, -1};
}

INLINE i32 shifted(i32 v, shift by) {
    i32 w = (i32)((u32)v << by.left);
    return ((w >> by.right) + (w >> by.half & by.one)) & by.keep;
}

/* (v + 2^(s-1)) >> s, half up; a left shift for s < 0; 0 for s > 30.  The result fits 32 bits. */
INLINE i32 rounding_shift(i32 v, i32 s) { return shifted(v, shift_by(s)); }

static u32 largest32(const i32 *v, i32 n) {
    u32 top = 0;
    for (i32 i = 0; i < n; i++) top = magnitude(v[i]) > top ? magnitude(v[i]) : top;
    return top;
}

static u32 largest16(const i16 *v, i32 n) {
    u32 top = 0;
    for (i32 i = 0; i < n; i++) top = magnitude(v[i]) > top ? magnitude(v[i]) : top;
    return top;
}

/* The exponent at which a row with this largest magnitude rounds into +-limit, as a byte. */
static i8 row_exponent(u32 largest, i32 exponent, i32 limit) {
    if (largest == 0) return NO_EXPONENT;
    i32 s = 0;
    while (rounding_shift((i32)largest, s) > limit) s++;
    return (i8)max_i32(LOW_EXPONENT, min_i32(HIGH_EXPONENT, exponent + s));
}

/* values (exponents[row * step]) plus residual, in place, at the exponent `aligned` of each row;
 * `proposed`: the row exponents that travel. */
EXPORT(align_rows)
void align_rows(i32 *restrict values, const i32 *restrict exponents, i32 step,
                const i16 *restrict residual, const i32 *restrict residual_exponents,
                i32 *restrict aligned, i8 *restrict proposed, i32 rows, i32 cols, i32 limit) {
    for (i32 r = 0; r < rows; r++) {
        i32 *m = values + (u32)r * (u32)cols;
        const i16 *rest = residual + (u32)r * (u32)cols;
        i32 e = exponents[r * step], rest_e = residual_exponents[r];
        u32 top = largest32(m, cols), rest_top = largest16(rest, cols);
        if (!top && !rest_top) {
            aligned[r] = 0;
            proposed[r] = NO_EXPONENT;
            continue;
        }
        i32 high = top ? e + bit_length(top) : INT32_MIN;
        i32 rest_high = rest_top ? rest_e + bit_length(rest_top) : INT32_MIN;
        i32 w = max_i32(high, rest_high) - 29;
        shift s = shift_by(top ? w - e : 31), t = shift_by(rest_top ? w - rest_e : 31);
        for (i32 i = 0; i < cols; i++) m[i] = shifted(m[i], s) + shifted(rest[i], t);
        aligned[r] = w;
        proposed[r] = row_exponent(largest32(m, cols), w, limit);
    }
}

INLINE void put(u8 *out, u32 i, i32 q, enum mode mode) {
    if (mode == INT8) out[i] = (u8)q;
    if (mode == INT16) ((i16 *)out)[i] = (i16)q;
    if (mode == INT4) out[i / 2] = i & 1 ? (u8)(out[i / 2] | (q & 15) << 4) : (u8)(q & 15);
}

INLINE i32 get(const u8 *data, u32 i, enum mode mode) {
    if (mode == INT8) return (i8)data[i];
    if (mode == INT16) return ((const i16 *)data)[i];
    i32 nibble = data[i / 2] >> (i & 1 ? 4 : 0) & 15;
    return (nibble ^ 8) - 8;
}

/* One row's mantissas and residual, |residual| < 2^15; `s` >= 0 is their shift, `t` the residual's. */
INLINE void quantise_row(const i32 *restrict values, u8 *restrict out, i16 *restrict residual,
                         u32 at, i32 cols, i32 s, i32 t, i32 limit, enum mode mode) {
    shift down = shift_by(s), rest_down = shift_by(t);
    i32 up = s & 31, has_quotient = s <= 30 ? -1 : 0;
    for (u32 i = at; i < at + (u32)cols; i++) {
        i32 q = clip(shifted(values[i], down), limit);
        i32 rest = values[i] - (i32)((u32)(q & has_quotient) << up);
        put(out, i, q, mode);
        residual[i] = (i16)clip(shifted(rest, rest_down), 32767);
    }
}

/* Mantissas of aligned rows at the agreed exponents, and the residuals left over. */
EXPORT(quantise_rows)
void quantise_rows(const i32 *restrict values, const i32 *restrict aligned,
                   const i8 *restrict agreed, u8 *restrict out, i16 *restrict residual,
                   i32 *restrict residual_exponents, i32 rows, i32 cols, i32 limit,
                   enum mode mode) {
    for (i32 r = 0; r < rows; r++) {
        u32 at = (u32)r * (u32)cols;
        if (agreed[r] == NO_EXPONENT) {
            for (u32 i = at; i < at + (u32)cols; i++) put(out, i, 0, mode), residual[i] = 0;
            residual_exponents[r] = 0;
            continue;
        }
        i32 s = max_i32(0, agreed[r] - aligned[r]), t = max_i32(0, s - RESIDUAL_BITS);
        if (mode == INT8) quantise_row(values, out, residual, at, cols, s, t, limit, INT8);
        if (mode == INT4) quantise_row(values, out, residual, at, cols, s, t, limit, INT4);
        if (mode == INT16) quantise_row(values, out, residual, at, cols, s, t, limit, INT16);
        residual_exponents[r] = aligned[r] + t;
    }
}

/* total += one member's mantissas. */
EXPORT(add_contribution)
void add_contribution(i32 *restrict total, const u8 *restrict data, i32 elements, enum mode mode) {
    if (mode == INT8)
        for (u32 i = 0; i < (u32)elements; i++) total[i] += get(data, i, INT8);
    else
        for (u32 i = 0; i < (u32)elements; i++) total[i] += get(data, i, mode);
}

/* Bytes as the exponents that align_rows takes; a row of zeros has exponent 0. */
EXPORT(widen_exponents)
void widen_exponents(const i8 *exponents, i32 *out, i32 rows) {
    for (i32 r = 0; r < rows; r++) out[r] = exponents[r] == NO_EXPONENT ? 0 : exponents[r];
}

/* Mode int16: the sum itself travels; rows of zeros get no exponent. */
EXPORT(pack_totals)
void pack_totals(const i32 *total, const i8 *agreed, i16 *out, i8 *exponents, i32 rows, i32 cols) {
    for (i32 r = 0; r < rows; r++) {
        const i32 *m = total + (u32)r * (u32)cols;
        exponents[r] = largest32(m, cols) ? agreed[r] : NO_EXPONENT;
        for (i32 i = 0; i < cols; i++) out[(u32)r * (u32)cols + (u32)i] = (i16)m[i];
    }
}

/* Reduced rows as one wide tensor: the largest row exponent less `width`; returns it. */
EXPORT(expand_rows)
i32 expand_rows(const i8 *restrict exponents, const u8 *restrict mantissas, i32 *restrict out,
                i32 rows, i32 cols, i32 width, enum mode mode) {
    i32 top = NO_EXPONENT;
    for (i32 r = 0; r < rows; r++) top = max_i32(top, exponents[r]);
    for (i32 r = 0; r < rows; r++) {
        u32 at = (u32)r * (u32)cols, end = at + (u32)cols;
        shift by = shift_by(exponents[r] == NO_EXPONENT ? 31 : top - width - exponents[r]);
        if (mode == INT8)
            for (u32 i = at; i < end; i++) out[i] = shifted(get(mantissas, i, INT8), by);
        else
            for (u32 i = at; i < end; i++) out[i] = shifted(get(mantissas, i, mode), by);
    }
    return top == NO_EXPONENT ? 0 : top - width;
}

EXPORT(largest_of)
u32 largest_of(const i32 *v, i32 count) { return largest32(v, count); }

/* Exact sum of squares of rounding_shift(v, s), with the least s that makes every number narrow. */
EXPORT(sum_squares)
u64 sum_squares(const i32 *v, i32 count) {
    u64 total = 0, largest = largest32(v, count);
    i32 s = 0;
    while ((largest + (((u64)1 << s) >> 1)) >> s > NARROW_MAX) s++;
    shift by = shift_by(s);
    for (i32 i = 0; i < count; i++) {
        i32 m = shifted(v[i], by);
        total += (u32)(m * m);
    }
    return total;
}
