//! use units index common lanes maximum products words reciprocal narrow_format
// dS = P (dP - sum P dP) scale.  A workgroup a row.  D = sum P dP and w = dP - D at 2^-14 of dP's
// unit; P as two 15-bit digits; a scale that is a power of two goes into the exponent.

var<workgroup> row_dot: atomic<i32>;

fn score_gradient(probability: i32, d: i32, dot: i32) -> i32 {
  let w = (d << 14u) - dot;
  let upper = rounding_shift(probability, 15);
  let m = mulq(w, upper, 14) + mulq(w, probability - (upper << 15u), 29);
  if (params.scale_m == 16384) {
    return m;
  }
  return mulq(m, params.scale_m, 15);
}

@compute @workgroup_size(ROW_LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let row = row_of(group);
  if (row >= params.rows) {
    return;
  }
  let first = at(row, params.cols);
  let r = reciprocal(vec2<u32>(u32(z[row]), 0u));
  var part = 0i;
  for (var i = first + lane; i < first + params.cols; i += ROW_LANES) {
    let numerator = mantissa(p[i >> 3u], i & 7u);
    if (numerator != 0) {
      part += mulq(wide_probability(numerator, r), mantissa(dp[i >> 3u], i & 7u), 15);
    }
  }
  atomicAdd(&row_dot, part);
  workgroupBarrier();
  let dot = atomicLoad(&row_dot);

  var top = 0u;
  for (var i = first + lane; i < first + params.cols; i += ROW_LANES) {
    let numerator = mantissa(p[i >> 3u], i & 7u);
    var m = 0i;
    if (numerator != 0) {
      m = score_gradient(wide_probability(numerator, r), mantissa(dp[i >> 3u], i & 7u), dot);
    }
    out[i] = m;
    top = max(top, u32(abs(m)));
  }
  if (lane == 0u) {
    let shift = select(15i, 14i, params.scale_m == 16384);
    set_exponent(params.out_exp, exponent(params.dp_exp) - 14 + params.scale_e + shift);
  }
  raise_max(params.out_max, top, lane);
}
