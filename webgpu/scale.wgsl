//! use units index common maximum products narrow_format
//! vec4 out
// out[r, c] = x[r, c] times w[c].

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let row_vectors = params.cols >> 3u;
  let vectors = at(params.rows, row_vectors);
  var top = 0u;
  for (var i = id.x; i < vectors; i += groups.x << 8u) {
    let v = x[i];
    let s = w[i % row_vectors];
    let a = mul16x4(front(v), front(s));
    let b = mul16x4(back(v), back(s));
    out[i << 1u] = a;
    out[(i << 1u) + 1u] = b;
    top = max(top, max(largest(a), largest(b)));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, exponent(params.x_exp) + exponent(params.w_exp));
  }
  raise_max(params.out_max, top, lane);
}
