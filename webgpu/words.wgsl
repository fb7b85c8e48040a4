// Unsigned 64-bit integers as (low, high) words.

fn bit_length64(x: vec2<u32>) -> i32 {
  return select(bit_length(x.x), 32i + bit_length(x.y), x.y > 0u);
}

// The low word of x >> s (x << -s for s < 0), |s| <= 31.
fn shifted64(x: vec2<u32>, s: i32) -> u32 {
  if (s <= 0) {
    return x.x << u32(-s);
  }
  return (x.x >> u32(s)) | (x.y << u32(32 - s));
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
