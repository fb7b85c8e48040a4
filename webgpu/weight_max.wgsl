//! use maximum
// Largest pattern without its sign: the order of patterns is the order of values.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  var top = 0u;
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    top = max(top, p[i] & 0x7fffffffu);
  }
  raise_max(params.p_max, top, lane);
}
