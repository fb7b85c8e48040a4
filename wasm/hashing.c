/* The 128-bit hash of weights: a tree over ranges of 64 KiB, mixed by ChaCha quarter rounds. */
#include "common.h"

enum { LANES = 256, RANGE_WORDS = 16384 };

/* Four lanes; absorbs one word each. */
struct lanes {
    v128 a, b, c, d;
};

INLINE void absorb(struct lanes *s, v128 word) {
    s->a = wasm_v128_xor(s->a, word);
    s->a = wasm_i32x4_add(s->a, s->b), s->d = rotate4(wasm_v128_xor(s->d, s->a), 16);
    s->c = wasm_i32x4_add(s->c, s->d), s->b = rotate4(wasm_v128_xor(s->b, s->c), 12);
    s->a = wasm_i32x4_add(s->a, s->b), s->d = rotate4(wasm_v128_xor(s->d, s->a), 8);
    s->c = wasm_i32x4_add(s->c, s->d), s->b = rotate4(wasm_v128_xor(s->b, s->c), 7);
}

INLINE struct lanes initial(v128 lane) {
    return (struct lanes){wasm_v128_xor(wasm_i32x4_const_splat(0x61707865), lane),
                          wasm_i32x4_const_splat(0x3320646e), wasm_i32x4_const_splat(0x79622d32),
                          wasm_i32x4_const_splat(0x6b206574)};
}

/* The state of lanes 4*i.. after their own words and the number of them. */
INLINE struct lanes absorb_words(const u32 *words, i32 count, i32 i) {
    v128 lane = wasm_i32x4_add(wasm_i32x4_splat(4 * i), wasm_i32x4_const(0, 1, 2, 3));
    struct lanes s = initial(lane);
    i32 at = 4 * i;
    for (; at + 4 <= count; at += LANES) absorb(&s, wasm_v128_load(words + at));
    if (at < count) { /* only some of the four have one more word */
        i32 rest = count - at;
        u32 tail[4] = {0, 0, 0, 0};
        for (i32 j = 0; j < rest; j++) tail[j] = words[at + j];
        struct lanes more = s;
        absorb(&more, wasm_v128_load(tail));
        v128 has = wasm_i32x4_lt(wasm_i32x4_const(0, 1, 2, 3), wasm_i32x4_splat(rest));
        s.a = wasm_v128_bitselect(more.a, s.a, has), s.b = wasm_v128_bitselect(more.b, s.b, has);
        s.c = wasm_v128_bitselect(more.c, s.c, has), s.d = wasm_v128_bitselect(more.d, s.d, has);
    }
    u32 absorbed[4];
    for (i32 j = 0; j < 4; j++)
        absorbed[j] = (u32)max_i32(0, (count - 4 * i - j + LANES - 1) / LANES);
    absorb(&s, wasm_v128_load(absorbed));
    return s;
}

INLINE void absorb_state(struct lanes *s, const struct lanes *other) {
    absorb(s, other->a);
    absorb(s, other->b);
    absorb(s, other->c);
    absorb(s, other->d);
}

static void hash_range(const u32 *words, i32 count, u32 *out) {
    struct lanes s[LANES / 4];
    for (i32 i = 0; i < LANES / 4; i++) s[i] = absorb_words(words, count, i);
    for (i32 stride = LANES / 8; stride; stride /= 2)
        for (i32 i = 0; i < stride; i++) absorb_state(&s[i], &s[i + stride]);
    struct lanes other = {wasm_i32x4_shuffle(s->a, s->a, 2, 3, 2, 3),
                          wasm_i32x4_shuffle(s->b, s->b, 2, 3, 2, 3),
                          wasm_i32x4_shuffle(s->c, s->c, 2, 3, 2, 3),
                          wasm_i32x4_shuffle(s->d, s->d, 2, 3, 2, 3)};
    absorb_state(s, &other); /* stride 2 */
    other = (struct lanes){wasm_i32x4_shuffle(s->a, s->a, 1, 1, 1, 1),
                           wasm_i32x4_shuffle(s->b, s->b, 1, 1, 1, 1),
                           wasm_i32x4_shuffle(s->c, s->c, 1, 1, 1, 1),
                           wasm_i32x4_shuffle(s->d, s->d, 1, 1, 1, 1)};
    absorb_state(s, &other); /* stride 1 */
    out[0] = wasm_u32x4_extract_lane(s->a, 0);
    out[1] = wasm_u32x4_extract_lane(s->b, 0);
    out[2] = wasm_u32x4_extract_lane(s->c, 0);
    out[3] = wasm_u32x4_extract_lane(s->d, 0);
}

KERNEL(hash_ranges) {
    struct span s = share((i32)(((i64)c->count + RANGE_WORDS - 1) / RANGE_WORDS), 1, x);
    for (i32 r = s.first; r < s.last; r++)
        hash_range(c->x + (u32)r * RANGE_WORDS, min_i32(RANGE_WORDS, c->count - r * RANGE_WORDS),
                   c->ranges + 4 * (c->first_range + r));
}

KERNEL(hash_root) {
    if (x->part) return;
    struct lanes s = initial(wasm_i32x4_const_splat(0));
    for (i32 i = 0; i < c->count; i++) absorb(&s, wasm_i32x4_splat((i32)c->ranges[i]));
    absorb(&s, wasm_i32x4_splat(c->count));
    u32 *out = c->record + c->offset;
    out[0] = wasm_u32x4_extract_lane(s.a, 0);
    out[1] = wasm_u32x4_extract_lane(s.b, 0);
    out[2] = wasm_u32x4_extract_lane(s.c, 0);
    out[3] = wasm_u32x4_extract_lane(s.d, 0);
}
