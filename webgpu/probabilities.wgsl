//! use units index common products words reciprocal narrow_format
// P = P'/z, narrow, Q14.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let row_vectors = params.cols >> 3u;
  let vectors = at(params.rows, row_vectors);
  for (var i = id.x; i < vectors; i += groups.x << 8u) {
    let v = p[i];
    var probability = vec4<u32>();
    if (any(v != vec4<u32>())) {
      let r = reciprocal(vec2<u32>(u32(z[i / row_vectors]), 0u));
      for (var j = 0u; j < 8u; j++) {
        let m = rounding_shift(wide_probability(mantissa(v, j), r), 15);
        probability = with_mantissa(probability, j, m);
      }
    }
    out[i] = probability;
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, -14);
  }
}
