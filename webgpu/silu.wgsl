// Tables over |z| in steps of 1/64 up to 16, interpolated; f(-z) = 1 - f(z), Q14.

// |z| in Q12.
fn table_position(z: i32, e: i32) -> u32 {
  let t = u32(abs(z));
  let shift = e + 12;
  if (shift <= 0) {
    return min(u32(rounding_shift(i32(t), -shift)), 65535u);
  }
  return min(t << u32(min(shift, 16)), 65535u);
}

fn interpolated(left: i32, right: i32, position: u32, z: i32) -> i32 {
  let f = left + ((mul16(right - left, i32(position & 63u)) + 32) >> 6u);
  return select(f, 16384 - f, z < 0);
}

fn sigmoid_at(z: i32, e: i32) -> i32 {
  let t = table_position(z, e);
  return interpolated(sigmoid[t >> 6u], sigmoid[(t >> 6u) + 1u], t, z);
}

// z sigmoid(z) at z's own exponent.
fn silu(z: i32, e: i32) -> i32 {
  return rounding_shift(mul16(z, sigmoid_at(z, e)), 14);
}
