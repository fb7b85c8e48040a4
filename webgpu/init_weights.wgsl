//! use units random softfloat
// Sum of four 16-bit uniforms, centred, times a binary32 factor: one rounding.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let key = vec2<u32>(params.key_a, params.key_b);
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    let words = arx(i, key);
    let halves = (words & vec2<u32>(0xffffu)) + (words >> vec2<u32>(16u));
    p[i] = float_mul(float_from_int(i32(halves.x + halves.y) - 131070, 0), params.scale_bits);
  }
}
