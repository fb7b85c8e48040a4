//! use units common maximum softfloat
// AdamW in binary32, one rounding an operation, in this order:
// grad = g clip; m = m b1 + grad c1; v = v b2 + (grad grad) c2; update = (m i1)/(sqrt(v i2) + eps);
// with decay update = update + p wd; p = p - update lr.

const BETA_1 = 0x3f666666u; // 0.9
const GAIN_1 = 0x3dcccccdu; // 0.1
const BETA_2 = 0x3f733333u; // 0.95
const GAIN_2 = 0x3d4ccccdu; // 0.05
const EPSILON = 0x2edbe6ffu; // 1e-10
const DECAY = 0x3dcccccdu; // 0.1

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let lr = atomicLoad(&scalars[2]);
  let bias_1 = atomicLoad(&scalars[3]);
  let bias_2 = atomicLoad(&scalars[4]);
  let clip = atomicLoad(&scalars[5]);
  let e = exponent(params.g_exp);
  var top = 0u;
  for (var i = id.x; i < params.count; i += groups.x << 8u) {
    let grad = float_mul(float_from_int(g[i], e), clip);
    let first = float_add(float_mul(m[i], BETA_1), float_mul(grad, GAIN_1));
    let second = float_add(float_mul(v[i], BETA_2), float_mul(float_mul(grad, grad), GAIN_2));
    m[i] = first;
    v[i] = second;
    var update = float_div(float_mul(first, bias_1), float_add(float_sqrt(float_mul(second, bias_2)), EPSILON));
    if (params.decay == 1u) {
      update = float_add(update, float_mul(p[i], DECAY));
    }
    let weight = float_sub(p[i], float_mul(update, lr));
    p[i] = weight;
    top = max(top, magnitude(weight));
  }
  raise_max(params.p_max, top, lane);
}
