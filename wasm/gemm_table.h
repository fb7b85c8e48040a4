/* Tiny chunks of GEMM3: sums of products that are looked up.
 *
 * For three k and one column there are 27 sums A16[k]*Bhi[k] + ... with A16 of 0..2.  A table of
 * them costs as much as 7 rows of A by dots, and then a row takes one addition for three k of eight
 * columns, where dots take six.  The few larger A16 are sums of 2s and a 1, looked up one by one.
 * The three k lie a third of the table's depth apart, so that vectors of A give the indices.
 *
 * Sums fit 16 bits: 48 of 2*127, and 3 * MOST_EXTRAS more, are 27,432 at most.  In 32 bits they are
 * added straight to L, which holds them for any K below 3 million.
 */
#pragma once

#include "gemm_pack.h"

#define ZIP(x, y) \
    wasm_i8x16_shuffle(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(x, y) \
    wasm_i8x16_shuffle(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Eight rows of eight bytes, two in each of in[4], to eight columns. */
INLINE void transpose_bytes(const v128 in[4], v128 out[4]) {
    v128 a = ZIP(in[0], in[2]), b = ZIP_HIGH(in[0], in[2]); /* rows 0, 4; rows 1, 5 */
    v128 c = ZIP(in[1], in[3]), d = ZIP_HIGH(in[1], in[3]); /* rows 2, 6; rows 3, 7 */
    v128 even = ZIP(a, c), odd = ZIP(b, d);                 /* columns 0..3 */
    out[0] = ZIP(even, odd);
    out[1] = ZIP_HIGH(even, odd);
    even = ZIP_HIGH(a, c), odd = ZIP_HIGH(b, d); /* columns 4..7 */
    out[2] = ZIP(even, odd);
    out[3] = ZIP_HIGH(even, odd);
}

/* The lookups of a table: it has k, k + third and k + 2*third together. */
INLINE i32 third_of(i32 depth) { return depth > 24 ? 16 : 8; }

/* i*x + j*y + l*z for i, j, l of 0..2 at out[9*l + 3*j + i], of eight columns. */
INLINE void fill_sums(v128 x, v128 y, v128 z, i16 *out) {
    v128 of_z = wasm_i16x8_const_splat(0);
#pragma clang loop unroll(full)
    for (i32 l = 0; l < 3; l++) {
        v128 of_yz = of_z;
#pragma clang loop unroll(full)
        for (i32 j = 0; j < 3; j++, out += 3 * TABLE_COLS) {
            v128 sum = wasm_i16x8_add(of_yz, x);
            wasm_v128_store(out, of_yz);
            wasm_v128_store(out + TABLE_COLS, sum);
            wasm_v128_store(out + 2 * TABLE_COLS, wasm_i16x8_add(sum, x));
            of_yz = wasm_i16x8_add(of_yz, y);
        }
        of_z = wasm_i16x8_add(of_z, z);
    }
}

/* The table of `depth` k of rows of B; zeros for those that are missing. */
static void make_table(const u8 *b, u32 row_bytes, i32 rows, i32 depth, struct workspace *w) {
    i32 third = third_of(depth);
    for (i32 col = 0; col < TABLE_COLS; col += 8) {
        u8 bytes[TABLE_DEPTH][8]; /* high ones of eight columns */
        for (i32 k = 0; k < 3 * third; k += 8) {
            v128 in[4], out[4];
            for (i32 i = 0; i < 4; i++) {
                i32 r = col + 2 * i;
                const u8 *at = b + (u32)r * row_bytes + 2 * k;
                in[i] = wasm_i32x4_const_splat(0);
                if (r < rows && k < depth) in[i] = wasm_v128_load64_zero(at);
                if (r + 1 < rows && k < depth)
                    in[i] = wasm_v128_load64_lane(at + row_bytes, in[i], 1);
            }
            transpose_bytes(in, out);
            for (i32 i = 0; i < 4; i++) wasm_v128_store(bytes[k + 2 * i], out[i]);
        }
        for (i32 t = 0; t < third; t++)
            fill_sums(wasm_i16x8_load8x8(bytes[t]), wasm_i16x8_load8x8(bytes[third + t]),
                      wasm_i16x8_load8x8(bytes[2 * third + t]), w->table[t][0] + col);
    }
}

/* Which sums a row needs, its k from `first` on; where a chunk is not tiny the first of three,
 * which is 0.  `third` is third_of(depth). */
INLINE void find_row_sums(const u8 *row, i32 first, i32 depth, i32 third, i32 r,
                          const v128 *is_tiny, i32 has_more, struct workspace *w) {
    enum { SUMS_BYTES = sizeof w->table[0], SUM_BYTES = sizeof w->table[0][0] };
    static const i32 powers[3] = {1, 3, 9};
    i32 extras = 0;
    v128 at = wasm_i32x4_add(wasm_i32x4_splat((i32)w->table),
                             wasm_i32x4_const(0, SUMS_BYTES, 2 * SUMS_BYTES, 3 * SUMS_BYTES));
    for (i32 t = 0; t < third; t += 8) {
        v128 offset = wasm_i32x4_const_splat(0);
#pragma clang loop unroll(full)
        for (i32 j = 0; j < 3; j++) {
            i32 k = j * third + t;
            if (k >= depth) break;
            v128 v = wasm_u16x8_load8x8(row + 2 * (first + k) + 8);
            v = wasm_v128_and(v, is_tiny[k / CHUNK]);
            if (has_more) {
                v128 two = wasm_i16x8_const_splat(2);
                u32 left = wasm_i16x8_bitmask(wasm_i16x8_gt(v, two));
                for (; left; left &= left - 1) {
                    i32 lane = __builtin_ctz(left);
                    for (i32 more = row[2 * (first + k) + 8 + lane] - 2; more > 0; more -= 2)
                        w->extras[r][extras++] = w->table[t + lane][min_i32(more, 2) * powers[j]];
                }
                v = wasm_i16x8_min(v, two);
            }
            v = wasm_i16x8_mul(v, wasm_i16x8_splat((i16)(powers[j] * SUM_BYTES)));
            offset = wasm_i16x8_add(offset, v);
        }
        for (i32 half = 0; half < 2; half++) {
            v128 sum = half ? wasm_u32x4_extend_high_u16x8(offset)
                            : wasm_u32x4_extend_low_u16x8(offset);
            wasm_v128_store(&w->sums[r][t + 4 * half], wasm_i32x4_add(at, sum));
            at = wasm_i32x4_add(at, wasm_i32x4_const_splat(4 * SUMS_BYTES));
        }
    }
    w->extra_counts[r] = extras;
}

static void find_sums(const struct strip *s, i32 first, i32 depth, i32 r, struct workspace *w) {
    const struct chunks *found = &w->chunks[r / STRIP];
    v128 is_tiny[TABLE_DEPTH / CHUNK];
    i32 has_more = 0, third = third_of(depth);
    for (i32 n = 0; n < TABLE_DEPTH / CHUNK; n++) {
        i32 k = first + n * CHUNK;
        is_tiny[n] = wasm_i32x4_splat(-has_chunk(found->tiny, k));
        has_more |= has_chunk(found->tiny & found->more, k);
    }
    for (i32 i = 0; i < STRIP; i++)
        if (has_more)
            find_row_sums(s->rows[i], first, depth, third, r + i, is_tiny, 1, w);
        else if (depth == TABLE_DEPTH) /* constants halve the time */
            find_row_sums(s->rows[i], first, TABLE_DEPTH, THIRD, r + i, is_tiny, 0, w);
        else
            find_row_sums(s->rows[i], first, depth, third, r + i, is_tiny, 0, w);
}

INLINE void add_wide(i32 *out, v128 v) {
    v128 low = wasm_i32x4_extend_low_i16x8(v), high = wasm_i32x4_extend_high_i16x8(v);
    wasm_v128_store(out, wasm_i32x4_add(wasm_v128_load(out), low));
    wasm_v128_store(out + 4, wasm_i32x4_add(wasm_v128_load(out + 4), high));
}

/* sum += one of the table. */
INLINE void add_sum(const i16 *from, v128 sum[TABLE_COLS / 8]) {
#pragma clang loop unroll(full)
    for (i32 n = 0; n < TABLE_COLS / 8; n++)
        sum[n] = wasm_i16x8_add(sum[n], wasm_v128_load(from + 8 * n));
}

/* Adds the sums of row r to TABLE_COLS columns, which lie in tiles. */
INLINE void add_sums(const struct workspace *w, i32 r, i32 third, i32 *out) {
    v128 sum[TABLE_COLS / 8];
    for (i32 n = 0; n < TABLE_COLS / 8; n++) sum[n] = wasm_i32x4_const_splat(0);
    for (i32 t = 0; t < third; t += 8)
#pragma clang loop unroll(full)
        for (i32 i = 0; i < 8; i += 2) { /* two addresses a load */
            u64 two;
            __builtin_memcpy(&two, &w->sums[r][t + i], sizeof two);
            add_sum((const i16 *)(u32)two, sum);
            add_sum((const i16 *)(u32)(two >> 32), sum);
        }
    for (i32 t = 0; t < w->extra_counts[r]; t++) add_sum(w->extras[r][t], sum);
    for (i32 n = 0; n < TABLE_COLS / 8; n++) add_wide(out + n * TILE, sum[n]);
}
