// The interleaved narrow layout: x, y = hi of values 0..3, 4..7; z, w = lo.

fn signed_bytes(x: u32) -> vec4<i32> {
  return (vec4<i32>(i32(x)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
}

fn packed_bytes(m: vec4<i32>) -> u32 {
  let b = vec4<u32>(m) & vec4<u32>(0xffu);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

// Mantissas 0..3 and 4..7 of a vector.
fn front(v: vec4<u32>) -> vec4<i32> {
  return (signed_bytes(v.x) << vec4<u32>(8u)) + signed_bytes(v.z);
}

fn back(v: vec4<u32>) -> vec4<i32> {
  return (signed_bytes(v.y) << vec4<u32>(8u)) + signed_bytes(v.w);
}

fn narrow_vector(a: vec4<i32>, b: vec4<i32>) -> vec4<u32> {
  let ah = (a + vec4<i32>(128)) >> vec4<u32>(8u);
  let bh = (b + vec4<i32>(128)) >> vec4<u32>(8u);
  return vec4<u32>(packed_bytes(ah), packed_bytes(bh), packed_bytes(a), packed_bytes(b));
}

// The mantissa of value i (0..7) of a vector.
fn mantissa(v: vec4<u32>, i: u32) -> i32 {
  let hi = select(v.x, v.y, i > 3u);
  let lo = select(v.z, v.w, i > 3u);
  let bit = (i & 3u) << 3u;
  return (extractBits(i32(hi), bit, 8u) << 8u) + extractBits(i32(lo), bit, 8u);
}

// The vector with value i set; it was 0.
fn with_mantissa(v: vec4<u32>, i: u32, m: i32) -> vec4<u32> {
  let bit = (i & 3u) << 3u;
  let hi = ((u32(m + 128) >> 8u) & 0xffu) << bit;
  let lo = (u32(m) & 0xffu) << bit;
  return v | select(vec4<u32>(hi, 0u, lo, 0u), vec4<u32>(0u, hi, 0u, lo), i > 3u);
}
