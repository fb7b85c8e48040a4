//! use common narrow_format
//! vec4 p
// binary32 patterns to narrow: mantissas shifted by the exponent difference to the largest.

fn biased(bits: u32) -> i32 {
  return max(i32((bits >> 23u) & 0xffu), 1);
}

fn significand(bits: u32) -> i32 {
  return i32((bits & 0x7fffffu) | select(0u, 0x800000u, (bits & 0x7f800000u) != 0u));
}

fn weight(bits: u32, e: i32) -> i32 {
  let m = significand(bits);
  return rounding_shift(select(m, -m, (bits >> 31u) == 1u), e + 150 - biased(bits));
}

fn weights(bits: vec4<u32>, e: i32) -> vec4<i32> {
  return vec4<i32>(weight(bits.x, e), weight(bits.y, e), weight(bits.z, e), weight(bits.w, e));
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let top = maximum(params.p_max);
  let e = biased(top) - 150 + nearest_shift(u32(significand(top)));
  for (var i = id.x; i < (params.count >> 3u); i += groups.x << 8u) {
    out[i] = narrow_vector(weights(p[i << 1u], e), weights(p[(i << 1u) + 1u], e));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, e);
  }
}
