//! use common maximum
// acc = acc + x by the rule of add, in place; with first = 1 acc counts as empty.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let ex = exponent(params.x_exp);
  let ea = exponent(params.acc_exp);
  var e = ex + bit_length(maximum(params.x_max)) - 29;
  if (params.first == 0u) {
    e = max(e, ea + bit_length(maximum(params.acc_max)) - 29);
  }
  var top = 0u;
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    var m = rounding_shift(x[i], e - ex);
    if (params.first == 0u) {
      m += rounding_shift(acc[i], e - ea);
    }
    acc[i] = m;
    top = max(top, u32(abs(m)));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, e);
  }
  raise_max(params.out_max, top, lane);
}
