/* GEMM3: C[i,j] = sum_k A[i,k]*B[j,k] without lo*lo, by two 16-bit products each.
 *
 * T = sum (A16*Bhi + Ahi*Blo) = 256*hh + mid, because A16 = 256*Ahi + Alo.  Then
 * (hh << g) + ((mid + half) >> (8-g)) = (T + half) >> (8-g), half = 2^(7-g), for every integer T.
 *
 * Panels are packed as pairs of i16, (A16, Ahi) for a row of A and (Bhi, Blo) for a row of B, so
 * that one i32x4.dot_i16x8_s adds one k to four elements of C; two k where all Ahi are 0.  Where all
 * A16 are 0..2, but for a few, gemm_table.h does.
 *
 * Overflow: |A16| <= 32639, |Bhi|, |Ahi| <= 127, |Blo| <= 128, so a term is at most
 * 32639*127 + 127*128 = 4,161,409 and 512 of them, with half, stay below 2^31 (2,130,641,536).  A
 * block of K has DEPTH = 256 terms; longer sums are spilled after each block as H = sum (T >> 8),
 * L = sum (T & 255), T = 256*H + L, whence (T + half) >> (8-g) = (H << g) + ((L + half) >> (8-g)).
 */
#include "gemm_table.h"

/* Nothing that computes v moves behind this: else one sum's additions of several k come first, then
 * the next one's, and what they share no longer fits the registers. */
#define KEEP_ORDER(v) __asm__ volatile("" : "+r"(v))

/* One k of the 4 x 8 tile: sum[2*row + half] += pairs.  Rows of A lie `stride` apart. */
INLINE void step(const u32 *a, i32 stride, const u32 *b, v128 sum[8]) {
    v128 b0 = wasm_v128_load(b), b1 = wasm_v128_load(b + 4);
#pragma clang loop unroll(full)
    for (i32 r = 0; r < STRIP; r++) {
        v128 pair = wasm_v128_load32_splat(a + r * stride);
        sum[2 * r] = wasm_i32x4_add(sum[2 * r], wasm_i32x4_dot_i16x8(pair, b0));
        sum[2 * r + 1] = wasm_i32x4_add(sum[2 * r + 1], wasm_i32x4_dot_i16x8(pair, b1));
        KEEP_ORDER(sum[2 * r]);
        KEEP_ORDER(sum[2 * r + 1]);
    }
}

/* Adds pairs first..last (a multiple of 4 of them) to the 4 x 8 sums. */
INLINE void multiply(const u32 *a, i32 stride, const u32 *b, i32 first, i32 last, v128 sum[8]) {
    a += first;
    b += first * PANEL;
    for (i32 k = first; k < last; k += 4) {
        step(a, stride, b, sum);
        step(a + 1, stride, b + PANEL, sum);
        step(a + 2, stride, b + 2 * PANEL, sum);
        step(a + 3, stride, b + 3 * PANEL, sum);
        a += 4;
        b += 4 * PANEL;
    }
}

/* Adds the chunks of a bit mask, `per_chunk` pairs each.  Not inlined, lest the loop over everything
 * lose its registers to this one. */
static __attribute__((noinline)) void multiply_chunks(const u32 *a, i32 stride, const u32 *b,
                                                      u32 chunks, i32 per_chunk, i32 depth,
                                                      v128 *out) {
    v128 sum[8];
    for (i32 i = 0; i < 8; i++) sum[i] = out[i];
    while (chunks) { /* run by run */
        i32 first = __builtin_ctz(chunks), last = first + __builtin_ctz(~(chunks >> first));
        multiply(a, stride, b, first * per_chunk, min_i32(last * per_chunk, depth), sum);
        chunks &= ~0u << last;
    }
    for (i32 i = 0; i < 8; i++) out[i] = sum[i];
}

/* One call's constants and running state. */
struct gemm {
    const struct gemm3_call *c;
    struct workspace *w;
    i32 g;
    v128 top;
};

/* Where a tile lies and how much of it is real. */
struct tile {
    i32 *out; /* its first element */
    i32 row, col, rows, cols;
};

/* Zeroes the elements above the diagonal, stores the real ones and keeps their maximum. */
INLINE void store_tile(struct gemm *s, const struct tile *t, v128 value[8]) {
    i32 is_visible = !s->c->causal || t->row >= t->col + PANEL - 1;
    if (is_visible && t->rows == STRIP && t->cols == PANEL) {
        v128 top = s->top;
        i32 *out = t->out;
#pragma clang loop unroll(full)
        for (i32 r = 0; r < STRIP; r++, out += s->c->c_row) {
            wasm_v128_store(out, value[2 * r]);
            wasm_v128_store(out + 4, value[2 * r + 1]);
            top = max4(max4(top, value[2 * r]), value[2 * r + 1]);
        }
        s->top = top;
        return;
    }
    for (i32 r = 0; r < t->rows; r++) {
        i32 *out = t->out + r * s->c->c_row;
        for (i32 half = 0; half < 2; half++) {
            v128 v = value[2 * r + half];
            if (s->c->causal) {
                v128 col = wasm_i32x4_add(wasm_i32x4_splat(t->col + 4 * half),
                                          wasm_i32x4_const(0, 1, 2, 3));
                v = wasm_v128_and(v, wasm_i32x4_le(col, wasm_i32x4_splat(t->row + r)));
            }
            s->top = max4(s->top, v);
            i32 left = t->cols - 4 * half;
            if (left >= 4) {
                wasm_v128_store(out + 4 * half, v);
            } else {
                if (left > 0) out[4 * half] = wasm_i32x4_extract_lane(v, 0);
                if (left > 1) out[4 * half + 1] = wasm_i32x4_extract_lane(v, 1);
                if (left > 2) out[4 * half + 2] = wasm_i32x4_extract_lane(v, 2);
            }
        }
    }
}

/* Whole sums to mantissas: T alone (one block of K). */
INLINE void finish_sums(struct gemm *s, const struct tile *t, v128 sum[8], i32 g) {
    for (i32 i = 0; i < 8; i++)
        sum[i] = wasm_i32x4_shr(wasm_i32x4_add(sum[i], wasm_i32x4_splat(1 << (7 - g))), 8 - g);
    store_tile(s, t, sum);
}

/* H and L with the last block's T to mantissas. */
INLINE void finish_tile(struct gemm *s, const struct tile *t, v128 sum[8], i32 *high, i32 *low) {
    u32 down = (u32)(8 - s->g), up = (u32)s->g;
    v128 half = wasm_i32x4_splat(1 << (7 - s->g));
    for (i32 i = 0; i < 8; i++) {
        v128 h = wasm_i32x4_add(wasm_v128_load(high + 4 * i), wasm_i32x4_shr(sum[i], 8));
        v128 l = wasm_i32x4_add(wasm_v128_load(low + 4 * i),
                                wasm_v128_and(sum[i], wasm_i32x4_const_splat(255)));
        sum[i] = wasm_i32x4_add(wasm_i32x4_shl(h, up),
                                wasm_i32x4_shr(wasm_i32x4_add(l, half), down));
    }
    store_tile(s, t, sum);
}

INLINE void spill(const v128 sum[8], i32 *high, i32 *low) {
    for (i32 i = 0; i < 8; i++) {
        v128 h = wasm_i32x4_shr(sum[i], 8);
        v128 l = wasm_v128_and(sum[i], wasm_i32x4_const_splat(255));
        wasm_v128_store(high + 4 * i, wasm_i32x4_add(h, wasm_v128_load(high + 4 * i)));
        wasm_v128_store(low + 4 * i, wasm_i32x4_add(l, wasm_v128_load(low + 4 * i)));
    }
}

/* A block of C: its packed panels times each other, for one block of K. */
struct block {
    i32 *out;
    i32 row, col, rows, cols;
    i32 k, depth;
};

/* The tile at row i and column j of a block. */
INLINE struct tile tile_at(const struct gemm *s, const struct block *at, i32 i, i32 j) {
    return (struct tile){at->out + i * s->c->c_row + j, at->row + i, at->col + j,
                         min_i32(STRIP, at->rows - i), min_i32(PANEL, at->cols - j)};
}

/* Where H and L of a tile lie. */
INLINE i32 tile_index(const struct block *at, i32 i, i32 j) {
    return (i / STRIP * ((at->cols + PANEL - 1) / PANEL) + j / PANEL) * TILE;
}

/* Ends the work on a tile for this block of K. */
INLINE void settle_tile(struct gemm *s, const struct block *at, i32 i, i32 j, v128 sum[8]) {
    struct tile t = tile_at(s, at, i, j);
    i32 is_last = at->k + at->depth >= s->c->k;
    if (is_last && at->k == 0) {
        if (s->g == 7) /* shifts by constants cost a fourth */
            finish_sums(s, &t, sum, 7);
        else
            finish_sums(s, &t, sum, s->g);
        return;
    }
    i32 index = tile_index(at, i, j);
    if (is_last)
        finish_tile(s, &t, sum, s->w->high + index, s->w->low + index);
    else
        spill(sum, s->w->high + index, s->w->low + index);
}

/* A tile whose strip of A is partly zero or small.  Not inlined, as multiply_chunks is not. */
static __attribute__((noinline)) void multiply_sparse(struct gemm *s, const struct block *at, i32 i,
                                                      i32 j) {
    const struct chunks *chunks = &s->w->chunks[i / STRIP];
    v128 sum[8];
    for (i32 n = 0; n < 8; n++) sum[n] = wasm_i32x4_const_splat(0);
    if (chunks->whole)
        multiply_chunks(s->w->a + i * DEPTH, DEPTH, s->w->b + j * at->depth, chunks->whole, CHUNK,
                        at->depth, sum);
    if (chunks->half)
        multiply_chunks(s->w->half_a + i * DEPTH / 2, DEPTH / 2, s->w->half_b + j * at->depth / 2,
                        chunks->half, CHUNK / 2, at->depth / 2, sum);
    settle_tile(s, at, i, j, sum);
}

/* Adds the tiny chunks of rows of A and B to L.  A table that is wider than what is left of the block
 * adds zeros to the tiles behind. */
static void add_tiny(struct gemm *s, const struct block *at, const u8 *a, const u8 *b) {
    u32 a_bytes = 2 * (u32)s->c->a_row, b_bytes = 2 * (u32)s->c->b_row;
    for (i32 k = 0; k < at->depth; k += TABLE_DEPTH) {
        i32 depth = min_i32(TABLE_DEPTH, at->depth - k);
        u32 here = ((1u << TABLE_DEPTH / CHUNK) - 1) << k / CHUNK;
        if (!(s->w->any.tiny & here)) continue;
        for (i32 i = 0; i < at->rows; i += STRIP) {
            struct strip strip = strip_at(a + (u32)i * a_bytes, a_bytes, at->rows - i);
            if (s->w->chunks[i / STRIP].tiny & here) find_sums(&strip, k, depth, i, s->w);
        }
        for (i32 j = 0; j < at->cols; j += TABLE_COLS) {
            make_table(b + (u32)j * b_bytes + 2 * k, b_bytes, at->cols - j, depth, s->w);
            for (i32 i = 0; i < at->rows; i += STRIP) {
                if (!(s->w->chunks[i / STRIP].tiny & here)) continue;
                i32 *low = s->w->low + tile_index(at, i, j);
                for (i32 r = 0; r < STRIP; r++)
                    add_sums(s->w, i + r, third_of(depth), low + r * PANEL);
            }
        }
    }
}

static void multiply_block(struct gemm *s, const struct block *at) {
    i32 is_last = at->k + at->depth >= s->c->k;
    for (i32 i = 0; i < at->rows; i += STRIP) {
        struct chunks chunks = s->w->chunks[i / STRIP];
        if (!(chunks.whole | chunks.half) && !is_last) continue;
        for (i32 j = 0; j < at->cols; j += PANEL) {
            v128 sum[8];
            for (i32 n = 0; n < 8; n++) sum[n] = wasm_i32x4_const_splat(0);
            if (s->c->causal && at->col + j > at->row + i + STRIP - 1) {
                struct tile t = tile_at(s, at, i, j);
                if (is_last) store_tile(s, &t, sum);
            } else if (chunks.is_mixed) {
                multiply_sparse(s, at, i, j);
            } else {
                multiply(s->w->a + i * DEPTH, DEPTH, s->w->b + j * at->depth, chunks.first,
                         chunks.last, sum);
                settle_tile(s, at, i, j, sum);
            }
        }
    }
}

/* How C is cut into units of work; the bits do not depend on it. */
struct cut {
    i32 rows, cols, down, across;
};

static struct cut cut_up(const struct gemm3_call *c, i32 parts) {
    struct cut cut = {BLOCK_ROWS, BLOCK_COLS, 0, 0};
    /* A short K leaves room for more columns: long runs of C cost fewer page-table walks (1.5 times
     * the speed at n = 16,512, k = 64). */
    if (c->k < DEPTH) cut.cols = BLOCK_COLS * DEPTH / max_i32(c->k, 32) & -PANEL;
    for (;;) {
        cut.down = (c->m + cut.rows - 1) / cut.rows;
        cut.across = (c->n + cut.cols - 1) / cut.cols;
        i32 units = c->outer * c->inner * cut.down * cut.across;
        if (units % parts == 0 || units >= 4 * parts || cut.rows <= 16) break;
        if (min_i32(cut.cols, c->n) > min_i32(cut.rows, c->m) && cut.cols > 32)
            cut.cols = cut.cols / 2 & -PANEL;
        else
            cut.rows /= 2;
    }
    cut.rows = ((c->m + cut.down - 1) / cut.down + STRIP - 1) & -STRIP; /* units of equal size */
    cut.cols = ((c->n + cut.across - 1) / cut.across + PANEL - 1) & -PANEL;
    return cut;
}

KERNEL(gemm3) {
    struct gemm s = {c, (struct workspace *)x->scratch, c->g, wasm_i32x4_const_splat(0)};
    struct cut cut = cut_up(c, x->parts);
    i32 down = cut.down, across = cut.across;
    struct span units = share(c->outer * c->inner * down * across, 1, x);
    const u8 *packed_a = 0, *packed_b = 0, *packed_half = 0; /* what the panels hold, if a whole K */
    for (i32 unit = units.first; unit < units.last; unit++) {
        i32 row = unit % down * cut.rows, col = unit / down % across * cut.cols;
        i32 z = unit / down / across, o = z / c->inner, i = z % c->inner;
        const u8 *a = c->a + 2 * ((u32)o * c->a_outer + (u32)i * c->a_inner + (u32)row * c->a_row);
        const u8 *b = c->b + 2 * ((u32)o * c->b_outer + (u32)(i / c->b_group) * c->b_inner +
                                  (u32)col * c->b_row);
        struct block at = {c->out + (u32)o * c->c_outer + (u32)i * c->c_inner +
                               (u32)row * c->c_row + col,
                           row, col, min_i32(cut.rows, c->m - row), min_i32(cut.cols, c->n - col),
                           0, 0};
        i32 whole = c->k <= DEPTH, hidden = c->causal && col > row + at.rows - 1;
        if (!whole) {
            u32 bytes = sizeof(i32) * (u32)tile_index(&at, (at.rows + STRIP - 1) & -STRIP, 0);
            __builtin_memset(s.w->high, 0, bytes);
            __builtin_memset(s.w->low, 0, bytes);
        }
        for (; at.k < c->k; at.k += DEPTH) {
            at.depth = min_i32(DEPTH, c->k - at.k);
            if (!hidden) {
                u32 a_bytes = 2 * (u32)c->a_row, b_bytes = 2 * (u32)c->b_row;
                const u8 *from_a = a + 2 * at.k, *from_b = b + 2 * at.k;
                const struct chunks *any = &s.w->any;
                if (!whole || packed_a != a) {
                    look(from_a, a_bytes, at.rows, at.depth, !whole, s.w);
                    pack_a(from_a, a_bytes, at.rows, at.depth, s.w);
                }
                if (!whole || packed_b != b)
                    pack_b(from_b, b_bytes, at.cols, at.depth, whole ? ALL_CHUNKS : any->whole,
                           s.w->b);
                if (any->half && (!whole || packed_half != b)) {
                    pack_half_b(from_b, b_bytes, at.cols, at.depth,
                                whole ? ALL_CHUNKS : any->half, s.w->half_b);
                    packed_half = b;
                }
                if (any->tiny) add_tiny(&s, &at, from_a, from_b);
                packed_a = a;
                packed_b = b;
            }
            multiply_block(&s, &at);
        }
    }
    raise_max(x, c->out_max, max_lane(s.top));
    set_exponent(x, c->out_exp, exponent(x, c->a_exp) + exponent(x, c->b_exp) + 16 - c->g);
}
