//! use units index common lanes products narrow_format exponential
// Causal softmax before its division: P' = 2^-t in Q14, the maximum of every row at 16,384, and
// z = sum P'.  A workgroup a row.

var<workgroup> row_top: atomic<u32>;
var<workgroup> row_sum: atomic<i32>;

@compute @workgroup_size(ROW_LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let row = row_of(group);
  if (row >= params.rows) {
    return;
  }
  let query = select(row % params.cols, atomicLoad(&scalars[6]), params.moving == 1u);
  let seen = min(query, params.cols - 1u) + 1u;
  let first = at(row, params.cols);
  var top = 0u;
  for (var c = lane; c < seen; c += ROW_LANES) {
    top = max(top, ordered(scores[first + c]));
  }
  atomicMax(&row_top, top);
  workgroupBarrier();
  top = atomicLoad(&row_top);
  let to_q16 = exponent(params.x_exp) + 16;

  var sum = 0i;
  for (var i = lane; i < (params.cols >> 3u); i += ROW_LANES) {
    var v = vec4<u32>();
    for (var c = i << 3u; c < min((i << 3u) + 8u, seen); c++) {
      let steps = table_steps(base2_distance(top - ordered(scores[first + c]), to_q16));
      let numerator = rounding_shift(shifted_term(table[steps & 4095u], steps), 15);
      v = with_mantissa(v, c & 7u, numerator);
      sum += numerator;
    }
    out[(first >> 3u) + i] = v;
  }
  atomicAdd(&row_sum, sum);
  workgroupBarrier();
  if (lane == 0u) {
    z[row] = atomicLoad(&row_sum);
    set_exponent(params.out_exp, -14);
  }
}
