//! use index common maximum narrow_format
//! vec4 out
// out[r, :] = table[ids[r], :] << 13.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let row_vectors = params.cols >> 3u;
  let vectors = at(params.rows, row_vectors);
  var top = 0u;
  for (var i = id.x; i < vectors; i += groups.x << 8u) {
    let v = table[at(ids[i / row_vectors], row_vectors) + i % row_vectors];
    let a = front(v) << vec4<u32>(13u);
    let b = back(v) << vec4<u32>(13u);
    out[i << 1u] = a;
    out[(i << 1u) + 1u] = b;
    top = max(top, max(largest(a), largest(b)));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, exponent(params.table_exp) - 13);
  }
  raise_max(params.out_max, top, lane);
}
