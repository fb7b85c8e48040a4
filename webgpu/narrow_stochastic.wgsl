//! use common narrow_format random
//! vec4 x
// Wide to narrow, (m + r) >> shift with r uniform in [0, 2^shift): unbiased.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let shift = stochastic_shift(maximum(params.x_max));
  let key = tensor_key(params.tensor_id);
  for (var i = id.x; i < (params.count >> 3u); i += groups.x << 8u) {
    let j = i << 1u;
    let a = (x[j] + random4(i << 3u, key, shift)) >> vec4<u32>(u32(shift));
    let b = (x[j + 1u] + random4((i << 3u) + 4u, key, shift)) >> vec4<u32>(u32(shift));
    out[i] = narrow_vector(a, b);
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, exponent(params.x_exp) + shift);
  }
}
