//! use units index common maximum products words reciprocal
// out = x / z at exponent max(eV, eX) - 14: |out| <= max |V|, so no maximum is needed for it.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let count = at(at(params.rows, params.heads), params.head_dim);
  let ex = exponent(params.x_exp);
  let e = max(exponent(params.v_exp), ex) - 14;
  var top = 0u;
  for (var i = id.x; i < count; i += groups.x << 8u) {
    let head_row = i / params.head_dim;
    let row = head_row / params.heads;
    let head = head_row % params.heads;
    let sequence = row / params.context;
    let r = reciprocal(vec2<u32>(
      u32(z[at(at(sequence, params.heads) + head, params.context) + row % params.context]), 0u));
    let m = mul_reciprocal(x[i], r, r.bits - 1 + e - ex);
    out[i] = m;
    top = max(top, u32(abs(m)));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, e);
  }
  raise_max(params.out_max, top, lane);
}
