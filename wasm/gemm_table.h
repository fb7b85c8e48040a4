/* Tiny chunks of GEMM3: sums of products that are looked up.
 *
 * For two k and one column there are 16 sums A16[k]*Bhi[k] + A16[k+1]*Bhi[k+1] with A16 of 0..3.  A
 * table of them costs as much as 8 rows of A by dots, and then a row takes one addition for two k of
 * eight columns, where dots take four.  The sums of a table's depth fit 16 bits: 32 * 3 * 127 =
 * 12,192; in 32 bits they are added straight to L, which holds them for any K below 5 million.
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

/* i*x + j*y for i, j of 0..3 at out[4*j + i], of eight columns. */
INLINE void fill_sums(v128 x, v128 y, i16 *out) {
    v128 multiple = wasm_i16x8_const_splat(0);
#pragma clang loop unroll(full)
    for (i32 j = 0; j < 4; j++) {
        v128 sum = multiple;
#pragma clang loop unroll(full)
        for (i32 i = 0; i < 4; i++) {
            wasm_v128_store(out + (4 * j + i) * TABLE_COLS, sum);
            sum = wasm_i16x8_add(sum, x);
        }
        multiple = wasm_i16x8_add(multiple, y);
    }
}

/* The table of `depth` k of rows of B; zeros for those that are missing. */
static void make_table(const u8 *b, u32 row_bytes, i32 rows, i32 depth, struct workspace *w) {
    for (i32 col = 0; col < TABLE_COLS; col += 8)
        for (i32 k = 0; k < depth; k += 8) {
            v128 in[4], out[4];
            for (i32 i = 0; i < 4; i++) {
                i32 r = col + 2 * i;
                const u8 *at = b + (u32)r * row_bytes + 2 * k;
                in[i] = wasm_i32x4_const_splat(0);
                if (r < rows) in[i] = wasm_v128_load64_zero(at);
                if (r + 1 < rows) in[i] = wasm_v128_load64_lane(at + row_bytes, in[i], 1);
            }
            transpose_bytes(in, out);
            for (i32 i = 0; i < 4; i++)
                fill_sums(wasm_i16x8_extend_low_i8x16(out[i]),
                          wasm_i16x8_extend_high_i8x16(out[i]), w->table[k / 2 + i][0] + col);
        }
}

/* Which sums a strip needs; in chunks that are not tiny the first of a pair, which is 0. */
static void find_sums(const struct strip *s, i32 first, i32 depth, i32 r, struct workspace *w) {
    const i32 pair_bytes = sizeof w->table[0];
    u32 tiny = w->chunks[r / STRIP].tiny;
    v128 pairs = wasm_i32x4_add(wasm_i32x4_splat((i32)w->table),
                                wasm_i32x4_const(0, pair_bytes, 2 * pair_bytes, 3 * pair_bytes));
    for (i32 i = 0; i < STRIP; i++) {
        v128 at = pairs;
        for (i32 k = 0; k < depth; k += 8) {
            v128 sum = wasm_i32x4_const_splat(0);
            if (has_chunk(tiny, first + k)) {
                v128 v = wasm_v128_load(s->rows[i] + 2 * (first + k));
                v = wasm_v128_or(v, wasm_u16x8_shr(v, 6)); /* two low bytes: A[k] + 4*A[k+1] */
                v = wasm_v128_and(v, wasm_i16x8_const_splat(PAIR_SUMS - 1));
                sum = wasm_i32x4_mul(wasm_u32x4_extend_high_u16x8(v),
                                     wasm_i32x4_const_splat(sizeof w->table[0][0]));
            }
            wasm_v128_store(&w->sums[r + i][k / 2], wasm_i32x4_add(at, sum));
            at = wasm_i32x4_add(at, wasm_i32x4_const_splat(4 * pair_bytes));
        }
    }
}

INLINE void add_wide(i32 *out, v128 v) {
    v128 low = wasm_i32x4_extend_low_i16x8(v), high = wasm_i32x4_extend_high_i16x8(v);
    wasm_v128_store(out, wasm_i32x4_add(wasm_v128_load(out), low));
    wasm_v128_store(out + 4, wasm_i32x4_add(wasm_v128_load(out + 4), high));
}

/* Adds the sums of a row to TABLE_COLS columns, which lie in tiles. */
INLINE void add_sums(const i16 *const *sums, i32 pairs, i32 *out) {
    v128 sum[TABLE_COLS / 8];
    for (i32 n = 0; n < TABLE_COLS / 8; n++) sum[n] = wasm_i32x4_const_splat(0);
    for (i32 p = 0; p < pairs; p += 4)
#pragma clang loop unroll(full)
        for (i32 i = 0; i < 4; i++)
#pragma clang loop unroll(full)
            for (i32 n = 0; n < TABLE_COLS / 8; n++)
                sum[n] = wasm_i16x8_add(sum[n], wasm_v128_load(sums[p + i] + 8 * n));
    for (i32 n = 0; n < TABLE_COLS / 8; n++) add_wide(out + n * TILE, sum[n]);
}
