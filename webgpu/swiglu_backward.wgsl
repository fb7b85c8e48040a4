//! use units common maximum products narrow_format silu
// dz = dy u slope(z), du = dy silu(z).

fn slope_at(m: i32, e: i32) -> i32 {
  let t = table_position(m, e);
  return interpolated(slope[t >> 6u], slope[(t >> 6u) + 1u], t, m);
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let ez = exponent(params.z_exp);
  var dz_top = 0u;
  var du_top = 0u;
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    let d = mantissa(dy[i >> 3u], i & 7u);
    let m = mantissa(z[i >> 3u], i & 7u);
    let grad_z = mulq(mul16(d, mantissa(u[i >> 3u], i & 7u)), slope_at(m, ez), 15);
    let grad_u = mul16(d, silu(m, ez));
    dz[i] = grad_z;
    du[i] = grad_u;
    dz_top = max(dz_top, u32(abs(grad_z)));
    du_top = max(du_top, u32(abs(grad_u)));
  }
  if (id.x == 0u) {
    let ey = exponent(params.dy_exp);
    set_exponent(params.dz_exp, ey + exponent(params.u_exp) + 1);
    set_exponent(params.du_exp, ey + ez);
  }
  raise_max(params.du_max, du_top, lane);
  raise_second_max(params.dz_max, dz_top, lane);
}
