/* Packing for GEMM3: panels of A and B as pairs of i16, and which chunks of A need how much work. */
#pragma once

#include "common.h"

enum {
    DEPTH = 256,      /* k a block */
    STRIP = 4,        /* rows of A in registers */
    PANEL = 8,        /* rows of B (columns of C) in registers */
    BLOCK_ROWS = 256, /* rows of A packed at once */
    BLOCK_COLS = 128, /* rows of B packed at once, of DEPTH values each */
    TILE = STRIP * PANEL,
    CHUNK = 16,       /* k that are left out, or done at less cost, together */
    TABLE_DEPTH = 48, /* k of a table of sums, see gemm_table.h */
    TABLE_COLS = 32,
    THIRD = TABLE_DEPTH / 3,
    SUMS = 27,            /* three values of 0..2 */
    MOST_EXTRAS = 20,     /* sums of a tiny chunk for what its values have above 2 */
    FEWEST_CHUNKS = 64,   /* that pay for the tables of a block */
    ALL_CHUNKS = 0xffff,  /* of a block */
};

/* A strip of A by chunks of K, a bit each.  Where all A16 are 0 there is nothing to do (half of
 * causal attention).  Where all Ahi are 0, T = sum A16*Bhi, and one dot does two k.  Where all A16
 * are 0..2 as well, but for a few (most of the gradient of the logits: its mantissas are
 * probabilities in Q14), sums of three products are looked up. */
struct chunks {
    u32 whole, half, tiny;
    u32 more; /* tiny ones with values above 2 */
    i32 first, last; /* where there is work, done whole unless is_mixed */
    i32 is_mixed;
};

/* The scratch memory of a call. */
struct workspace {
    u32 a[BLOCK_ROWS * DEPTH]; /* [row][k] (A16, Ahi) */
    u32 b[BLOCK_COLS * DEPTH]; /* [panel][k][PANEL] (Bhi, Blo) */
    u32 half_a[BLOCK_ROWS * DEPTH / 2]; /* [row][k/2] (A16 of k, of k + 1) */
    u32 half_b[BLOCK_COLS * DEPTH / 2]; /* [panel][k/2][PANEL] (Bhi of k, of k + 1) */
    i32 high[BLOCK_ROWS * BLOCK_COLS], low[BLOCK_ROWS * BLOCK_COLS]; /* H and L, [tile][TILE] */
    i16 table[THIRD][SUMS][TABLE_COLS];
    const i16 *sums[BLOCK_ROWS][THIRD]; /* where in the table */
    const i16 *extras[BLOCK_ROWS][TABLE_DEPTH / CHUNK * MOST_EXTRAS]; /* and for values above 2 */
    i32 extra_counts[BLOCK_ROWS];
    struct chunks chunks[BLOCK_ROWS / STRIP];
    struct chunks any; /* the chunks of some strip */
};
_Static_assert(sizeof(struct workspace) <= GEMM_SCRATCH_BYTES, "wasm_layout.py reserves it");

static const u8 NO_ROW[2 * DEPTH];

/* The rows of a strip at their first k; zeros stand for those that are missing. */
struct strip {
    const u8 *rows[STRIP];
};

INLINE struct strip strip_at(const u8 *a, u32 row_bytes, i32 rows) {
    struct strip s;
    for (i32 r = 0; r < STRIP; r++) s.rows[r] = r < rows ? a + (u32)r * row_bytes : NO_ROW;
    return s;
}

/* The largest (unsigned) bytes of some k of a strip: high ones in the left half, low ones beside. */
INLINE v128 largest_bytes(const struct strip *s, i32 first, i32 last) {
    v128 largest = wasm_i32x4_const_splat(0);
    for (i32 k = first; k < last; k += 8)
        for (i32 r = 0; r < STRIP; r++)
            largest = wasm_u8x16_max(largest, wasm_v128_load(s->rows[r] + 2 * k));
    return largest;
}

/* How many sums make up what values above 2 of some k of a strip have more: a half, rounded up.
 * High bytes are 0.  Sums of bytes stop at 255, which is too many anyway. */
static i32 count_extras(const struct strip *s, i32 first, i32 last) {
    v128 zero = wasm_i32x4_const_splat(0), extras = zero;
    for (i32 k = first; k < last; k += 8)
        for (i32 r = 0; r < STRIP; r++) {
            v128 more = wasm_u8x16_sub_sat(wasm_v128_load(s->rows[r] + 2 * k),
                                           wasm_i8x16_const_splat(2));
            extras = wasm_u8x16_add_sat(extras, wasm_u8x16_avgr(more, zero));
        }
    return sum_lanes(wasm_u32x4_extadd_pairwise_u16x8(wasm_u16x8_extadd_pairwise_u8x16(extras)));
}

static struct chunks look_at(const struct strip *s, i32 depth) {
    struct chunks found = {0, 0, 0, 0, 0, 0, 0};
    for (i32 k = 0; k < depth; k += CHUNK) {
        i32 last = min_i32(k + CHUNK, depth);
        v128 largest = largest_bytes(s, k, last);
        u64 low = (u64)wasm_i64x2_extract_lane(largest, 1);
        u32 chunk = 1u << (k / CHUNK);
        if (wasm_i64x2_extract_lane(largest, 0))
            found.whole |= chunk;
        else if (!(low & 0xfcfcfcfcfcfcfcfc) && !(low & low >> 1 & 0x0101010101010101))
            found.tiny |= low ? chunk : 0;
        else if (count_extras(s, k, last) > MOST_EXTRAS)
            found.half |= chunk;
        else
            found.tiny |= chunk, found.more |= chunk;
    }
    u32 used = found.whole | found.half | found.tiny;
    if (!used) return found;
    i32 first = __builtin_ctz(used), last = 32 - __builtin_clz(used);
    found.first = first * CHUNK;
    found.last = min_i32(last * CHUNK, depth);
    /* Half and tiny chunks count one, whole and zero ones between them two: a fourth saved is
     * worth it. */
    i32 work = 2 * __builtin_popcount(found.whole) + __builtin_popcount(found.half | found.tiny);
    found.is_mixed = 2 * work <= 3 * (last - first);
    if (!found.is_mixed) {
        found.whole = (1u << last) - (1u << first);
        found.half = found.tiny = found.more = 0;
    }
    return found;
}

/* Looks at the rows of A.  Tiny chunks are half ones where there can be no tables or are too few. */
static void look(const u8 *a, u32 row_bytes, i32 rows, i32 depth, i32 tables, struct workspace *w) {
    i32 strips = (rows + STRIP - 1) / STRIP, tiny = 0;
    for (i32 i = 0; i < strips; i++) {
        i32 r = i * STRIP;
        struct strip s = strip_at(a + (u32)r * row_bytes, row_bytes, rows - r);
        w->chunks[i] = look_at(&s, depth);
        tiny += __builtin_popcount(w->chunks[i].tiny);
    }
    w->any = (struct chunks){0, 0, 0, 0, 0, 0, 0};
    for (i32 i = 0; i < strips; i++) {
        struct chunks *found = &w->chunks[i];
        if (!tables || tiny < FEWEST_CHUNKS) {
            found->half |= found->tiny;
            found->tiny = 0;
        }
        w->any.whole |= found->whole;
        w->any.half |= found->half;
        w->any.tiny |= found->tiny;
    }
}

INLINE void pack_whole(const struct strip *s, i32 first, i32 last, u32 *out) {
    for (i32 r = 0; r < STRIP; r++)
        for (i32 k = first; k < last; k += 8) {
            v128 v = wasm_v128_load(s->rows[r] + 2 * k);
            v128 high = wasm_i16x8_extend_low_i8x16(v);
            v128 whole = wasm_i16x8_add(wasm_i16x8_shl(high, 8), wasm_i16x8_extend_high_i8x16(v));
            u32 *pairs = out + r * DEPTH + k;
            wasm_v128_store(pairs, wasm_i16x8_shuffle(whole, high, 0, 8, 1, 9, 2, 10, 3, 11));
            wasm_v128_store(pairs + 4, wasm_i16x8_shuffle(whole, high, 4, 12, 5, 13, 6, 14, 7, 15));
        }
}

/* Where the high bytes are 0, the low ones are the values. */
INLINE void pack_half(const struct strip *s, i32 first, i32 last, u32 *out) {
    for (i32 r = 0; r < STRIP; r++)
        for (i32 k = first; k < last; k += 8)
            wasm_v128_store(out + (r * DEPTH + k) / 2,
                            wasm_i16x8_load8x8(s->rows[r] + 2 * k + 8));
}

/* Packs what will be used of rows of A that were looked at. */
static void pack_a(const u8 *a, u32 row_bytes, i32 rows, i32 depth, struct workspace *w) {
    for (i32 r = 0; r < rows; r += STRIP) {
        struct strip s = strip_at(a + (u32)r * row_bytes, row_bytes, rows - r);
        const struct chunks *found = &w->chunks[r / STRIP];
        u32 *whole = w->a + r * DEPTH, *half = w->half_a + r * DEPTH / 2;
        if (!found->is_mixed) {
            pack_whole(&s, found->first, found->last, whole);
            continue;
        }
        for (u32 left = found->whole | found->half; left; left &= left - 1) {
            i32 chunk = __builtin_ctz(left), first = chunk * CHUNK;
            i32 last = min_i32(first + CHUNK, depth);
            if (found->whole >> chunk & 1)
                pack_whole(&s, first, last, whole);
            else
                pack_half(&s, first, last, half);
        }
    }
}

/* Four k of four rows: pairs at in[row] to [k][row] at out, PANEL pairs apart. */
INLINE void transpose4(const v128 in[4], u32 *out) {
    v128 a = wasm_i32x4_shuffle(in[0], in[1], 0, 4, 1, 5);
    v128 b = wasm_i32x4_shuffle(in[2], in[3], 0, 4, 1, 5);
    v128 c = wasm_i32x4_shuffle(in[0], in[1], 2, 6, 3, 7);
    v128 d = wasm_i32x4_shuffle(in[2], in[3], 2, 6, 3, 7);
    wasm_v128_store(out, wasm_i64x2_shuffle(a, b, 0, 2));
    wasm_v128_store(out + PANEL, wasm_i64x2_shuffle(a, b, 1, 3));
    wasm_v128_store(out + 2 * PANEL, wasm_i64x2_shuffle(c, d, 0, 2));
    wasm_v128_store(out + 3 * PANEL, wasm_i64x2_shuffle(c, d, 1, 3));
}

INLINE i32 has_chunk(u32 chunks, i32 k) { return chunks >> (k / CHUNK) & 1; }

/* Packs some chunks of rows of B. */
static void pack_b(const u8 *b, u32 row_bytes, i32 rows, i32 depth, u32 chunks, u32 *out) {
    for (i32 first = 0; first < rows; first += 4) {
        u32 *four = out + first / PANEL * PANEL * depth + first % PANEL;
        for (i32 k = 0; k < depth; k += 8) {
            if (!has_chunk(chunks, k)) continue;
            v128 left[4], right[4];
            for (i32 j = 0; j < 4; j++) {
                v128 v = wasm_i32x4_const_splat(0);
                if (first + j < rows) v = wasm_v128_load(b + (u32)(first + j) * row_bytes + 2 * k);
                v = wasm_i8x16_shuffle(v, v, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
                left[j] = wasm_i16x8_extend_low_i8x16(v);
                right[j] = wasm_i16x8_extend_high_i8x16(v);
            }
            transpose4(left, four + k * PANEL);
            transpose4(right, four + (k + 4) * PANEL);
        }
        if (first + 4 >= rows && first % PANEL == 0)
            for (i32 k = 0; k < depth; k++)
                wasm_v128_store(four + k * PANEL + 4, wasm_i32x4_const_splat(0));
    }
}

static void pack_half_b(const u8 *b, u32 row_bytes, i32 rows, i32 depth, u32 chunks, u32 *out) {
    for (i32 first = 0; first < rows; first += 4) {
        u32 *four = out + first / PANEL * PANEL * depth / 2 + first % PANEL;
        for (i32 k = 0; k < depth; k += 8) {
            if (!has_chunk(chunks, k)) continue;
            v128 high[4];
            for (i32 j = 0; j < 4; j++) {
                high[j] = wasm_i32x4_const_splat(0);
                if (first + j < rows)
                    high[j] = wasm_i16x8_load8x8(b + (u32)(first + j) * row_bytes + 2 * k);
            }
            transpose4(high, four + k / 2 * PANEL);
        }
        if (first + 4 >= rows && first % PANEL == 0)
            for (i32 k = 0; k < depth / 2; k++)
                wasm_v128_store(four + k * PANEL + 4, wasm_i32x4_const_splat(0));
    }
}
