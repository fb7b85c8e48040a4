// Terms of a softmax in base 2: t = (row maximum - score) times the scale, term = 2^-t.

// Order-preserving map of scores to u32, whose maximum starts at 0.
fn ordered(score: i32) -> u32 {
  return bitcast<u32>(score) ^ 0x80000000u;
}

// t in Q16 from the difference d of mantissas; the scale has two digits.
fn base2_distance(d: u32, to_q16: i32) -> i32 {
  var q = 0u;
  if (to_q16 >= 0) {
    q = min(d, (1u << 26u) >> u32(min(to_q16, 26))) << (u32(to_q16) & 31u);
  } else if (to_q16 >= -30) {
    let s = u32(-to_q16);
    q = min((d + (1u << (s - 1u))) >> s, 1u << 26u);
  }
  return mulq(i32(q), params.scale_m, -params.scale_e) + mulq(i32(q), params.scale_l, 14 - params.scale_e);
}

// t in steps of the table (1/4096), at most 31.
fn table_steps(t: i32) -> u32 {
  return min(u32(t + 8) >> 4u, 31u << 12u);
}

// The term in Q29 from the table's entry for the fraction.
fn shifted_term(entry: i32, steps: u32) -> i32 {
  let n = steps >> 12u;
  return i32((u32(entry) + ((1u << n) >> 1u)) >> n);
}
