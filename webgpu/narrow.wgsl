//! use common narrow_format
//! vec4 x
// Wide to narrow, nearest, half up.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let shift = nearest_shift(maximum(params.x_max));
  for (var i = id.x; i < (params.count >> 3u); i += groups.x << 8u) {
    let j = i << 1u;
    out[i] = narrow_vector(rounding_shift4(x[j], shift), rounding_shift4(x[j + 1u], shift));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, exponent(params.x_exp) + shift);
  }
}
