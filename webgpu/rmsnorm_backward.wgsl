//! use units index common lanes maximum products pairs narrow_format
// dx = (t - xhat mean(t xhat)) / rms with t = dy w.  A workgroup a row.

fn integer_root(n: u32) -> u32 {
  var root = 0u;
  while (at(root + 1u, root + 1u) <= n) {
    root += 1u;
  }
  return root;
}

@compute @workgroup_size(ROW_LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let row = row_of(group);
  if (row >= params.rows) {
    return;
  }
  let first = at(row, params.cols);
  var part = Pair(0, 0u);
  for (var c = lane; c < params.cols; c += ROW_LANES) {
    let i = first + c;
    let t = mul16(mantissa(dy[i >> 3u], c & 7u), mantissa(w[c >> 3u], c & 7u));
    part = pair_add(part, mul16(rounding_shift(t, 15), mantissa(xhat[i >> 3u], c & 7u)));
  }
  let et = exponent(params.dy_exp) + exponent(params.w_exp);
  let ex = exponent(params.xhat_exp);
  let head = bit_length(params.cols) + 1;
  let mean = mulq(pair_shift(pair_total(part), u32(head)), params.mean_m, 15);
  let mean_exp = et + 15 + ex + head + 15 + params.mean_e;
  let headroom = bit_length(integer_root(params.cols) + 2u); // |xhat mean| <= sqrt(cols) 2^30
  let mean_shift = et + headroom - mean_exp - ex;
  let top_exp = i32(maximum(params.rows_max)) - 4096;
  let inverse = inv_rms[row];
  let inverse_shift = 15 + top_exp - inv_exp[row];

  var top = 0u;
  for (var c = lane; c < params.cols; c += ROW_LANES) {
    let i = first + c;
    let t = mul16(mantissa(dy[i >> 3u], c & 7u), mantissa(w[c >> 3u], c & 7u));
    let u = rounding_shift(t, headroom) - mulq(mean, mantissa(xhat[i >> 3u], c & 7u), mean_shift);
    let m = mulq(u, inverse, inverse_shift);
    out[i] = m;
    top = max(top, u32(abs(m)));
  }
  if (lane == 0u) {
    set_exponent(params.out_exp, et + headroom + 15 + top_exp);
  }
  raise_max(params.out_max, top, lane);
}
