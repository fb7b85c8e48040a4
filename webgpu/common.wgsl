// Limits, shifts and scalar words (numbers/formats.py).

const NARROW_MAX = 32639u;

fn exponent(word: u32) -> i32 {
  return bitcast<i32>(atomicLoad(&scalars[word]));
}

fn set_exponent(word: u32, e: i32) {
  atomicStore(&scalars[word], bitcast<u32>(e));
}

fn maximum(word: u32) -> u32 {
  return atomicLoad(&scalars[word]);
}

fn bit_length(x: u32) -> i32 {
  return 32i - i32(countLeadingZeros(x));
}

// (x + 2^(s-1)) >> s; left shift for s < 0; 0 for s > 30.  |x| <= 2^30 + 2^24.
fn rounding_shift(x: i32, s: i32) -> i32 {
  if (s <= 0) {
    return x << (u32(-s) & 31u);
  }
  let r = u32(s) & 31u;
  return select((x + (1i << ((r - 1u) & 31u))) >> r, 0i, s > 30);
}

fn rounding_shift4(x: vec4<i32>, s: i32) -> vec4<i32> {
  if (s <= 0) {
    return x << vec4<u32>(u32(-s) & 31u);
  }
  let r = u32(s) & 31u;
  return select((x + vec4<i32>(1i << ((r - 1u) & 31u))) >> vec4<u32>(r), vec4<i32>(), s > 30);
}

// The least s >= 0 with (m + half) >> s <= 32639.
fn nearest_shift(m: u32) -> i32 {
  let s = u32(max(bit_length(m) - 15, 0));
  return i32(s) + select(0i, 1i, (m + ((1u << s) >> 1u)) >> s > NARROW_MAX);
}

// The least s >= 0 with (m + 2^s - 1) >> s <= 32639.
fn stochastic_shift(m: u32) -> i32 {
  let s = u32(max(bit_length(m) - 15, 0));
  return i32(s) + select(0i, 1i, (m + (1u << s) - 1u) >> s > NARROW_MAX);
}

// The shift that brings m to 15 bits and at most 32639, to the left too.
fn shift_to_15_bits(m: u32) -> i32 {
  let s = bit_length(m) - 15;
  return s + select(0i, 1i, rounding_shift(i32(m), s) > i32(NARROW_MAX));
}
