// The units of units.wgsl for devices where packed dot products are missing or slow: each factor is
// an int8 (or a digit of 6 bits), each product one of the 65,536 of the unit.

fn byte_of(x: u32, at_bit: u32) -> i32 {
  return extractBits(i32(x), at_bit, 8u);
}

fn dot4(a: u32, b: u32) -> i32 {
  return byte_of(a, 0u) * byte_of(b, 0u) + byte_of(a, 8u) * byte_of(b, 8u)
       + byte_of(a, 16u) * byte_of(b, 16u) + byte_of(a, 24u) * byte_of(b, 24u);
}

fn split(m: i32) -> u32 {
  return (u32(m + 128) & 0xff00u) | (u32(m) & 0xffu);
}

fn mul16(a: i32, b: i32) -> i32 {
  let ah = (a + 128) >> 8u;
  let bh = (b + 128) >> 8u;
  let al = a - (ah << 8u);
  let bl = b - (bh << 8u);
  return ((ah * bh) << 16u) + ((ah * bl + al * bh) << 8u) + al * bl;
}

fn mul24(a: u32, b: u32) -> vec2<u32> {
  let x = (vec4<u32>(a) >> vec4<u32>(0u, 6u, 12u, 18u)) & vec4<u32>(63u);
  let y = (vec4<u32>(b) >> vec4<u32>(0u, 6u, 12u, 18u)) & vec4<u32>(63u);
  let low = x.x * y.x + ((x.x * y.y + x.y * y.x) << 6u)
          + ((x.x * y.z + x.y * y.y + x.z * y.x) << 12u)
          + ((x.x * y.w + x.y * y.z + x.z * y.y + x.w * y.x) << 18u);
  let high = x.y * y.w + x.z * y.z + x.w * y.y + ((x.z * y.w + x.w * y.z) << 6u) + ((x.w * y.w) << 12u);
  let sum = low + (high << 24u);
  return vec2<u32>(sum, (high >> 8u) + select(0u, 1u, sum < low));
}

// a times four b: |a| <= 32,639, b int8.  Two unit products each: (ah b << 8) + al b.
fn mul16x8(a: i32, b: vec4<i32>) -> vec4<i32> {
  return a * b;
}
