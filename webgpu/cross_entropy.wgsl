//! use units index common lanes products pairs words reciprocal exponential narrow_format random
// Loss of a row in base 2 (Q16) and dlogits = p - onehot of the SUM of losses (Q30), stochastically
// narrowed by 16.  A workgroup a row.  Columns >= valid are no tokens; a target of 2^32 - 1 is ignored.

const IGNORED = 0xffffffffu;

var<workgroup> row_top: atomic<u32>;

fn term(score: i32, top: u32, to_q16: i32) -> i32 {
  let steps = table_steps(base2_distance(top - ordered(score), to_q16));
  return shifted_term(exp_table[steps & 4095u], steps);
}

// log2(z / 2^29) in Q16: a table of 4,096 intervals, interpolated by 14 bits.
fn log2_excess(z: vec2<u32>) -> i32 {
  let bits = bit_length64(z);
  let f = shifted64(z, bits - 29) - (1u << 28u);
  let left = log_table[f >> 16u];
  let step = log_table[(f >> 16u) + 1u] - left;
  let log = left + rounding_shift(mul16(step, i32((f >> 2u) & 0x3fffu)), 14);
  return ((bits - 30) << 16u) + rounding_shift(log, 8);
}

@compute @workgroup_size(LONG_ROW_LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let row = row_of(group);
  if (row >= params.rows) {
    return;
  }
  let first = at(row, params.cols);
  var top = 0u;
  for (var c = lane; c < params.valid; c += LONG_ROW_LANES) {
    top = max(top, ordered(logits[first + c]));
  }
  atomicMax(&row_top, top);
  workgroupBarrier();
  top = atomicLoad(&row_top);
  let to_q16 = exponent(params.x_exp) + 16;

  var part = Pair(0, 0u);
  for (var c = lane; c < params.valid; c += LONG_ROW_LANES) {
    part = pair_add(part, term(logits[first + c], top, to_q16));
  }
  let z = pair_words(pair_total(part));
  let r = reciprocal(z);
  let label = targets[row];
  let key = tensor_key(params.tensor_id);
  for (var i = lane; i < (params.cols >> 3u); i += LONG_ROW_LANES) {
    var v = vec4<u32>();
    let end = select(min((i << 3u) + 8u, params.valid), 0u, label == IGNORED);
    for (var c = i << 3u; c < end; c++) {
      let t = term(logits[first + c], top, to_q16);
      var m = 0i;
      if (t != 0) {
        m = mul_reciprocal(t, r, r.bits - 17);
      }
      m -= select(0i, 1i << 30u, c == label);
      v = with_mantissa(v, c & 7u, (m + random1(first + c, key, 16)) >> 16u);
    }
    dlogits[(first >> 3u) + i] = v;
  }
  if (lane == 0u) {
    var value = 0i;
    if (label != IGNORED) {
      value = base2_distance(top - ordered(logits[first + label]), to_q16) + log2_excess(z);
    }
    loss[row] = value;
    set_exponent(params.out_exp, -14);
  }
}
