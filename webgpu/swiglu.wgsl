//! use units common maximum products narrow_format silu
// z sigmoid(z) u.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let ez = exponent(params.z_exp);
  var top = 0u;
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    let m = mul16(silu(mantissa(z[i >> 3u], i & 7u), ez), mantissa(u[i >> 3u], i & 7u));
    out[i] = m;
    top = max(top, u32(abs(m)));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, ez + exponent(params.u_exp));
  }
  raise_max(params.out_max, top, lane);
}
