//! use units index common lanes maximum products pairs narrow_format
// dw[c] = sum over rows of dy[r, c] xhat[r, c].  A workgroup makes 8 columns, eight threads
// a row of them.

var<workgroup> highs: array<atomic<i32>, 8>;
var<workgroup> lows: array<atomic<u32>, 8>;

@compute @workgroup_size(LONG_ROW_LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let column = lane & 7u;
  let row_vectors = params.cols >> 3u;
  var part = Pair(0, 0u);
  for (var row = lane >> 3u; row < params.rows; row += LONG_ROW_LANES >> 3u) {
    let i = at(row, row_vectors) + group.x;
    part = pair_add(part, mul16(mantissa(dy[i], column), mantissa(xhat[i], column)));
  }
  atomicAdd(&highs[column], part.high);
  atomicAdd(&lows[column], part.low);
  workgroupBarrier();
  let cut = bit_length(params.rows);
  let m = pair_shift(Pair(atomicLoad(&highs[column]), atomicLoad(&lows[column])), u32(cut));
  if (lane < 8u) {
    out[(group.x << 3u) + column] = m;
  }
  if (lane == 0u && group.x == 0u) {
    set_exponent(params.out_exp, exponent(params.dy_exp) + exponent(params.xhat_exp) + cut);
  }
  raise_max(params.out_max, u32(abs(m)), lane);
}
