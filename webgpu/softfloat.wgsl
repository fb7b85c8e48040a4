// IEEE-754 binary32 by integers: each operation exact, then rounded once, to nearest even.  Denormals
// and signed zeros are kept, overflow gives infinity.  Every NaN is 0x7fc00000.

const INFINITY = 0x7f800000u;
const NAN = 0x7fc00000u;
const SIGN = 0x80000000u;

fn magnitude(x: u32) -> u32 {
  return x & 0x7fffffffu;
}

fn is_nan(x: u32) -> bool {
  return magnitude(x) > INFINITY;
}

// A finite magnitude: mantissa 2^(exponent), bit 23 set unless the mantissa is 0.
struct Unpacked { mantissa: u32, exponent: i32 }

fn unpack(x: u32) -> Unpacked {
  let biased = i32(magnitude(x) >> 23u);
  if (biased > 0) {
    return Unpacked((x & 0x7fffffu) | 0x800000u, biased - 150);
  }
  let m = x & 0x7fffffu;
  let shift = (countLeadingZeros(m) - 8u) & 31u;
  return Unpacked(m << shift, -149 - i32(shift));
}

// sign and mantissa 2^exponent, rounded; bit 31 of the mantissa set, bit 0 sticky.
fn rounded(sign: u32, exponent: i32, mantissa: u32) -> u32 {
  let biased = exponent + 158;
  if (biased > 254) {
    return sign | INFINITY;
  }
  var m = mantissa;
  if (biased < 1) {
    let shift = u32(min(1 - biased, 31));
    m = (m >> shift) | select(0u, 1u, (m << (32u - shift)) > 0u);
  }
  let rest = m & 0xffu;
  let kept = m >> 8u;
  let up = select(0u, 1u, rest > 128u || (rest == 128u && (kept & 1u) == 1u));
  return sign | ((u32(max(biased - 1, 0)) << 23u) + kept + up);
}

// Like rounded for any mantissa; sticky says that something smaller was cut off.
fn normalized(sign: u32, exponent: i32, mantissa: u32, sticky: bool) -> u32 {
  if (mantissa == 0u) {
    return sign;
  }
  let shift = countLeadingZeros(mantissa);
  return rounded(sign, exponent - i32(shift), (mantissa << shift) | select(0u, 1u, sticky));
}

// m 2^e.
fn float_from_int(m: i32, e: i32) -> u32 {
  return normalized(bitcast<u32>(m) & SIGN, e, u32(abs(m)), false);
}

fn float_add(a: u32, b: u32) -> u32 {
  let swap = magnitude(b) > magnitude(a);
  let x = select(a, b, swap);
  let y = select(b, a, swap);
  if (magnitude(x) >= INFINITY) {
    let clash = magnitude(y) == INFINITY && ((x ^ y) & SIGN) != 0u;
    return select(x, NAN, clash || is_nan(x));
  }
  let larger = unpack(x);
  let smaller = unpack(y);
  let m = larger.mantissa << 7u;
  let n = smaller.mantissa << 7u;
  let distance = select(larger.exponent - smaller.exponent, 0i, n == 0u);
  let shift = u32(min(distance, 31));
  let lost = n & ((1u << shift) - 1u);
  let aligned = (n >> shift) | select(0u, 1u, lost != 0u);
  if (((x ^ y) & SIGN) == 0u) {
    return normalized(x & SIGN, larger.exponent - 7, m + aligned, false);
  }
  return normalized(select(x & SIGN, 0u, m == aligned), larger.exponent - 7, m - aligned, false);
}

fn float_sub(a: u32, b: u32) -> u32 {
  return float_add(a, b ^ SIGN);
}

fn float_mul(a: u32, b: u32) -> u32 {
  let sign = (a ^ b) & SIGN;
  let top = max(magnitude(a), magnitude(b));
  let least = min(magnitude(a), magnitude(b));
  if (top >= INFINITY) {
    return select(sign | INFINITY, NAN, is_nan(top) || least == 0u);
  }
  if (least == 0u) {
    return sign;
  }
  let x = unpack(a);
  let y = unpack(b);
  // 47 or 48 bits: the upper 32 with a sticky bit for the lower 16.
  let product = mul24(x.mantissa, y.mantissa);
  let upper = (product.y << 16u) | (product.x >> 16u);
  return normalized(sign, x.exponent + y.exponent + 16, upper, (product.x & 0xffffu) != 0u);
}

fn float_div(a: u32, b: u32) -> u32 {
  let sign = (a ^ b) & SIGN;
  if (is_nan(a) || is_nan(b)) {
    return NAN;
  }
  if (magnitude(a) == INFINITY || magnitude(b) == 0u) {
    return select(sign | INFINITY, NAN, magnitude(a) == magnitude(b));
  }
  if (magnitude(a) == 0u || magnitude(b) == INFINITY) {
    return sign;
  }
  let x = unpack(a);
  let y = unpack(b);
  // Long division, 8 bits a step: a quotient of 30 or 31 bits, a remainder for the sticky bit.
  var quotient = x.mantissa / y.mantissa;
  var rest = x.mantissa % y.mantissa;
  for (var i = 0u; i < 3u; i++) {
    quotient = (quotient << 8u) | ((rest << 8u) / y.mantissa);
    rest = (rest << 8u) % y.mantissa;
  }
  quotient = (quotient << 6u) | ((rest << 6u) / y.mantissa);
  rest = (rest << 6u) % y.mantissa;
  return normalized(sign, x.exponent - y.exponent - 30, quotient, rest != 0u);
}

fn float_sqrt(a: u32) -> u32 {
  if (magnitude(a) == 0u || a == INFINITY) {
    return a;
  }
  if (a > INFINITY) {
    return NAN;
  }
  let x = unpack(a);
  // Even exponent, 25 bits; 28 zero bits follow.  Two bits of the radicand give one of the root.
  let odd = u32(x.exponent & 1);
  let m = x.mantissa << odd;
  var root = 0u;
  var rest = 0u;
  for (var i = 26i; i >= 0; i--) {
    let bits = select(0u, (m >> u32(max(i + i - 28, 0))) & 3u, i >= 14);
    rest = (rest << 2u) | bits;
    let trial = (root << 2u) | 1u;
    root <<= 1u;
    if (rest >= trial) {
      rest -= trial;
      root |= 1u;
    }
  }
  return normalized(0u, ((x.exponent - i32(odd)) >> 1u) - 14, root, rest != 0u);
}
