//! use common maximum
// x + y at e = max(ex + bits(max x), ey + bits(max y)) - 29: both terms stay below 2^29.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let ex = exponent(params.x_exp);
  let ey = exponent(params.y_exp);
  let e = max(ex + bit_length(maximum(params.x_max)), ey + bit_length(maximum(params.y_max))) - 29;
  var top = 0u;
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    let m = rounding_shift(x[i], e - ex) + rounding_shift(y[i], e - ey);
    out[i] = m;
    top = max(top, u32(abs(m)));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, e);
  }
  raise_max(params.out_max, top, lane);
}
