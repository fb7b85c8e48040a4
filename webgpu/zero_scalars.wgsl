//! use
// Clears scalar words before they are raised again.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    atomicStore(&scalars[params.start + i], 0u);
  }
}
