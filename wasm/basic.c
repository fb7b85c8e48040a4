/* Clearing, batches, embedding, narrowing, addition, transposition, the INT8 units. */
#include "common.h"

KERNEL(zero_scalars) {
    struct span s = share(c->count, 4, x);
    for (i32 i = s.first; i < s.last; i++) x->scalars[c->start + i] = 0;
}

KERNEL(move_scalars) {
    struct span s = share(c->count, 1, x);
    for (i32 i = s.first; i < s.last; i++) {
        x->scalars[c->target + i] = x->scalars[c->source + i];
        x->scalars[c->source + i] = 0;
    }
}

KERNEL(zero) {
    struct span s = share(c->count, 4, x);
    for (i32 i = s.first; i < s.last; i++) c->out[i] = 0;
}

KERNEL(fill) {
    struct span s = share(c->count, 4, x);
    for (i32 i = s.first; i < s.last; i++) c->out[i] = (u32)c->bits;
}

KERNEL(absmax) {
    struct span s = share(c->count, 4, x);
    u32 top = 0;
    for (i32 i = s.first; i < s.last; i++) top = max_u32(top, magnitude(c->x[i]));
    raise_max(x, c->out_max, top);
}

KERNEL(load_micro_batch) {
    if (x->part) return;
    const u32 *entry = c->inputs + x->scalars[MICRO_BATCH] * (2 * (u32)c->count + 2);
    x->scalars[KEY_A] = entry[0];
    x->scalars[KEY_B] = entry[1];
    for (i32 i = 0; i < c->count; i++) {
        c->ids[i] = entry[2 + i];
        c->targets[i] = entry[2 + c->count + i];
    }
    x->scalars[MICRO_BATCH]++;
}

KERNEL(gather) {
    struct span s = share(c->rows, 1, x);
    v128 top = wasm_i32x4_const_splat(0);
    for (i32 r = s.first; r < s.last; r++) {
        const u8 *row = c->table + (u64)c->ids[r] * c->cols * 2;
        i32 *out = c->out + (u32)r * c->cols;
        for (i32 i = 0; i < c->cols; i += 8) {
            v128 m = load_narrow(row, i);
            v128 low = wasm_i32x4_shl(wasm_i32x4_extend_low_i16x8(m), 13);
            v128 high = wasm_i32x4_shl(wasm_i32x4_extend_high_i16x8(m), 13);
            wasm_v128_store(out + i, low);
            wasm_v128_store(out + i + 4, high);
            top = max4(max4(top, low), high);
        }
    }
    raise_max(x, c->out_max, max_lane(top));
    set_exponent(x, c->out_exp, exponent(x, c->table_exp) - 13);
}

/* Parts share the columns, so that no two of them add to one element. */
KERNEL(scatter_add) {
    i32 shift = max_i32(0, bit_length(x->scalars[c->x_max]) + bit_length((u32)c->rows) - 30);
    struct key key = tensor_key(x, c->tensor_id);
    struct span s = share(c->cols, 8, x);
    for (i32 r = 0; r < c->rows; r++) {
        const i32 *in = c->x + (u32)r * c->cols;
        i32 *out = c->out + (u64)c->ids[r] * c->cols;
        for (i32 i = s.first; i < s.last; i += 8) {
            v128 low, high;
            random8(key, r * c->cols + i, shift, &low, &high);
            low = wasm_i32x4_shr(wasm_i32x4_add(wasm_v128_load(in + i), low), (u32)shift);
            high = wasm_i32x4_shr(wasm_i32x4_add(wasm_v128_load(in + i + 4), high), (u32)shift);
            wasm_v128_store(out + i, wasm_i32x4_add(wasm_v128_load(out + i), low));
            wasm_v128_store(out + i + 4, wasm_i32x4_add(wasm_v128_load(out + i + 4), high));
        }
    }
    set_exponent(x, c->out_exp, exponent(x, c->x_exp) + shift);
}

KERNEL(narrow) {
    i32 bits = nearest_shift(x->scalars[c->x_max]);
    struct shift shift = make_shift(bits);
    struct span s = share(c->count, 8, x);
    for (i32 i = s.first; i < s.last; i += 8)
        store_narrow(c->out, i, pack16(shift4(wasm_v128_load(c->x + i), shift),
                                       shift4(wasm_v128_load(c->x + i + 4), shift)));
    set_exponent(x, c->out_exp, exponent(x, c->x_exp) + bits);
}

KERNEL(narrow_stochastic) {
    i32 shift = stochastic_shift(x->scalars[c->x_max]);
    struct key key = tensor_key(x, c->tensor_id);
    struct span s = share(c->count, 8, x);
    for (i32 i = s.first; i < s.last; i += 8) {
        v128 low, high;
        random8(key, i, shift, &low, &high);
        low = wasm_i32x4_shr(wasm_i32x4_add(wasm_v128_load(c->x + i), low), (u32)shift);
        high = wasm_i32x4_shr(wasm_i32x4_add(wasm_v128_load(c->x + i + 4), high), (u32)shift);
        store_narrow(c->out, i, pack16(low, high));
    }
    set_exponent(x, c->out_exp, exponent(x, c->x_exp) + shift);
}

/* e = max(ea + bits(max a), eb + bits(max b)) - 29: both terms stay below 2^29. */
INLINE i32 aligned(const struct context *x, i32 max_word, i32 exp_word) {
    return exponent(x, exp_word) + bit_length(x->scalars[max_word]) - 29;
}

/* out = x >> sx + y >> sy; out may be y. */
INLINE void add_shifted(const struct context *x, i32 count, const i32 *a, i32 shift_a,
                        const i32 *b, i32 shift_b, i32 *out, i32 max_word) {
    struct shift sa = make_shift(shift_a), sb = make_shift(shift_b);
    struct span s = share(count, 4, x);
    v128 top = wasm_i32x4_const_splat(0);
    i32 i = s.first;
    for (; i + 4 <= s.last; i += 4) {
        v128 sum = wasm_i32x4_add(shift4(wasm_v128_load(a + i), sa),
                                  shift4(wasm_v128_load(b + i), sb));
        wasm_v128_store(out + i, sum);
        top = max4(top, sum);
    }
    u32 rest = 0;
    for (; i < s.last; i++) {
        out[i] = (i32)(rounding_shift(a[i], shift_a) + rounding_shift(b[i], shift_b));
        rest = max_u32(rest, magnitude(out[i]));
    }
    raise_max(x, max_word, max_u32(rest, max_lane(top)));
}

enum { NOTHING = 31 }; /* a shift that leaves 0 */

KERNEL(add) {
    i32 e = max_i32(aligned(x, c->x_max, c->x_exp), aligned(x, c->y_max, c->y_exp));
    add_shifted(x, c->count, c->x, e - exponent(x, c->x_exp), c->y, e - exponent(x, c->y_exp),
                c->out, c->out_max);
    set_exponent(x, c->out_exp, e);
}

KERNEL(accumulate) {
    i32 e = aligned(x, c->x_max, c->x_exp);
    i32 shift = NOTHING;
    if (!c->first) {
        e = max_i32(e, aligned(x, c->acc_max, c->acc_exp));
        shift = e - exponent(x, c->acc_exp);
    }
    add_shifted(x, c->count, c->x, e - exponent(x, c->x_exp), c->acc, shift, c->acc, c->out_max);
    set_exponent(x, c->out_exp, e);
}

INLINE v128 low8(v128 a, v128 b) {
    return wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE v128 high8(v128 a, v128 b) {
    return wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
INLINE v128 low16(v128 a, v128 b) { return wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE v128 high16(v128 a, v128 b) { return wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE v128 low32(v128 a, v128 b) { return wasm_i32x4_shuffle(a, b, 0, 4, 1, 5); }
INLINE v128 high32(v128 a, v128 b) { return wasm_i32x4_shuffle(a, b, 2, 6, 3, 7); }

/* Four vectors of column pairs (bytes of 8 rows) from the interleaved pairs of rows. */
INLINE void columns(v128 r01, v128 r23, v128 r45, v128 r67, v128 out[4]) {
    v128 left_03 = low16(r01, r23), right_03 = high16(r01, r23);
    v128 left_47 = low16(r45, r67), right_47 = high16(r45, r67);
    out[0] = low32(left_03, left_47);
    out[1] = high32(left_03, left_47);
    out[2] = low32(right_03, right_47);
    out[3] = high32(right_03, right_47);
}

/* 8 x 8 narrow values: row r at in + r*in_bytes to column r at out. */
INLINE void transpose8(const u8 *in, u32 in_bytes, u8 *out, u32 out_bytes) {
    v128 r[8], high[4], low[4];
    for (u32 i = 0; i < 8; i++) r[i] = wasm_v128_load(in + i * in_bytes);
    columns(low8(r[0], r[1]), low8(r[2], r[3]), low8(r[4], r[5]), low8(r[6], r[7]), high);
    columns(high8(r[0], r[1]), high8(r[2], r[3]), high8(r[4], r[5]), high8(r[6], r[7]), low);
    for (u32 i = 0; i < 4; i++) {
        wasm_v128_store(out + 2 * i * out_bytes, wasm_i64x2_shuffle(high[i], low[i], 0, 2));
        wasm_v128_store(out + (2 * i + 1) * out_bytes, wasm_i64x2_shuffle(high[i], low[i], 1, 3));
    }
}

enum {
    NARROW = 32, /* columns at once: what a cache line of 64 bytes holds */
    WIDE = 512,  /* where rows lie far apart: fewer pieces of them begin to be fetched */
    TALL = 256,  /* rows at once: their lines of some columns stay in the first cache */
};

/* Some columns from `in` to as many rows at `out`.  Runs of an output row are written whole: rows of
 * 2^n bytes compete for a few places of the first cache. */
static void transpose_columns(const struct transpose_call *c, const u8 *in, i32 cols, u8 *out,
                              u32 out_bytes) {
    u32 in_bytes = 2 * (u32)c->in_row;
    for (i32 block = 0; block < c->rows; block += TALL)
        for (i32 col = 0; col < cols; col += 8)
            for (i32 row = block; row < min_i32(block + TALL, c->rows); row += 8)
                transpose8(in + (u32)row * in_bytes + 2 * col, in_bytes,
                           out + (u32)col * out_bytes + 2 * row, out_bytes);
}

/* Parts share the blocks of output rows. */
KERNEL(transpose) {
    i32 width = c->cols >= 4 * WIDE ? WIDE : NARROW;
    i32 blocks = (c->cols + width - 1) / width;
    u32 out_bytes = 2 * (u32)(c->group * c->rows);
    struct span s = share(c->outer * c->inner * blocks, 1, x);
    for (i32 unit = s.first; unit < s.last; unit++) {
        i32 z = unit / blocks, col = unit % blocks * width, cols = min_i32(width, c->cols - col);
        const u8 *in = c->x + 2 * ((u32)(z / c->inner) * c->in_outer +
                                   (u32)(z % c->inner) * c->in_inner + (u32)col);
        u8 *out = c->out + ((u32)z * c->cols + (u32)col) * out_bytes;
        for (i32 g = 0; g < c->group; g++)
            transpose_columns(c, in + 2 * (u32)g * c->in_group, cols, out + 2 * (u32)g * c->rows,
                              out_bytes);
    }
}

KERNEL(unit_products) {
    struct span s = share(c->count, 4, x);
    for (i32 i = s.first; i < s.last; i++) c->out[i] = ((i >> 8) - 128) * ((i & 255) - 128);
}

KERNEL(unit_splits) {
    struct span s = share(c->count, 4, x);
    for (i32 i = s.first; i < s.last; i++) {
        i32 v = i - 32768, high = (v + 128) >> 8;
        c->out[i] = (high & 0xff) << 8 | ((v - (high << 8)) & 0xff);
    }
}
