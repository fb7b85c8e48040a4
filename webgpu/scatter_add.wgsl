//! use index common random
//! vec4 x
//! atomic out
// The transpose of gather.  A stochastic pre-shift by the number of rows keeps sums below 2^30.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let shift = max(0, bit_length(maximum(params.x_max)) + bit_length(params.rows) - 30);
  let key = tensor_key(params.tensor_id);
  let row_vectors = params.cols >> 2u;
  let vectors = at(params.rows, row_vectors);
  for (var i = id.x; i < vectors; i += groups.x << 8u) {
    let m = (x[i] + random4(i << 2u, key, shift)) >> vec4<u32>(u32(shift));
    let first = at(ids[i / row_vectors], params.cols) + ((i % row_vectors) << 2u);
    atomicAdd(&out[first], m.x);
    atomicAdd(&out[first + 1u], m.y);
    atomicAdd(&out[first + 2u], m.z);
    atomicAdd(&out[first + 3u], m.w);
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, exponent(params.x_exp) + shift);
  }
}
