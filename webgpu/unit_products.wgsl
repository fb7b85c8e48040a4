//! use units
// out[256 (a + 128) + (b + 128)] = a b, all 65,536 products of two int8.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    out[i] = dot4(((i >> 8u) ^ 0x80u) & 0xffu, (i ^ 0x80u) & 0xffu);
  }
}
