requires packed_4x8_integer_dot_product;
// Every product of data: int8 unit products, four at a time.

// Sum of the products of four pairs of int8.
fn dot4(a: u32, b: u32) -> i32 {
  return dot4I8Packed(a, b);
}

// The two int8 of m = 256 hi + lo: hi in bits 8..15, lo in bits 0..7.
fn split(m: i32) -> u32 {
  return (u32(m + 128) & 0xff00u) | (u32(m) & 0xffu);
}

// a times b, both within +-32,639: (hh << 16) + ((hl + lh) << 8) + ll.
fn mul16(a: i32, b: i32) -> i32 {
  let x = split(a);
  let y = split(b);
  let hh = dot4(x >> 8u, y >> 8u);
  let mid = dot4(x, (y >> 8u) | ((y & 0xffu) << 8u));
  let ll = dot4(x & 0xffu, y & 0xffu);
  return (hh << 16u) + (mid << 8u) + ll;
}

// Four digits of 6 bits, one a byte.
fn digits(x: u32) -> u32 {
  return (x & 63u) | ((x << 2u) & 0x3f00u) | ((x << 4u) & 0x3f0000u) | ((x << 6u) & 0x3f000000u);
}

// a times b, both below 2^24: (low, high) word of the 48 bits.  A column of digit products is one dot.
fn mul24(a: u32, b: u32) -> vec2<u32> {
  let x = digits(a);
  let d = digits(b);
  let y = (d << 24u) | ((d << 8u) & 0xff0000u) | ((d >> 8u) & 0xff00u) | (d >> 24u);
  let low = u32(dot4(x, y >> 24u)) + (u32(dot4(x, y >> 16u)) << 6u)
          + (u32(dot4(x, y >> 8u)) << 12u) + (u32(dot4(x, y)) << 18u);
  let high = u32(dot4(x, y << 8u)) + (u32(dot4(x, y << 16u)) << 6u) + (u32(dot4(x, y << 24u)) << 12u);
  let sum = low + (high << 24u);
  return vec2<u32>(sum, (high >> 8u) + select(0u, 1u, sum < low));
}
