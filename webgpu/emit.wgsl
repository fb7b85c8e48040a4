//! use common
// out[0] = exponent, out[1 + i] = x[i]: a tensor that the host can read by itself.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    out[i + 1u] = x[i];
  }
  if (id.x == 0u) {
    out[0] = exponent(params.x_exp);
  }
}
