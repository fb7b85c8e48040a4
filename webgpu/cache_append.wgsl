//! use index common maximum
// Row `position` of a cache = x at the static exponent cache_e, saturated at 2^30 + 2^24.

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
  let shift = params.cache_e - exponent(params.x_exp);
  let limit = 1090519040i >> (u32(min(max(-shift, 0), 30)) & 31u);
  let first = at(atomicLoad(&scalars[6]), params.cols);
  var top = 0u;
  for (var i = lane; i < params.cols; i += 256u) {
    var m = x[i];
    if (shift >= 0) {
      m = rounding_shift(m, shift);
    } else {
      m = clamp(m, -limit, limit) << (u32(min(-shift, 30)) & 31u);
    }
    cache[first + i] = m;
    top = max(top, u32(abs(m)));
  }
  if (lane == 0u) {
    set_exponent(params.cache_exp, params.cache_e);
  }
  raise_max(params.cache_max, top, lane);
}
