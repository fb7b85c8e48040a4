// 2^(27 + bits)/z as the digits high 2^14 + low: a quotient of 2^28 by 15 bits of z and one correction.

struct Reciprocal { high: i32, low: i32, bits: i32 }

fn reciprocal(z: vec2<u32>) -> Reciprocal {
  let bits = bit_length64(z);
  let z29 = shifted64(z, bits - 29);
  let r0 = i32((1u << 28u) / (z29 >> 14u));
  let rest = (1i << 28u) - mulq(i32(z29), r0, 14);
  let r = (r0 << 14u) + rounding_shift(mul16(r0, rounding_shift(rest, 2)), 12);
  let high = rounding_shift(r, 14);
  return Reciprocal(high, r - (high << 14u), bits);
}

// x times the reciprocal / 2^(k + 14).
fn mul_reciprocal(x: i32, r: Reciprocal, k: i32) -> i32 {
  return mulq(x, r.high, k) + mulq(x, r.low, k + 14);
}

// P = P'/Z in Q29.
fn wide_probability(numerator: i32, r: Reciprocal) -> i32 {
  return mul_reciprocal(numerator << 15u, r, r.bits - 1);
}
