//! use units index common maximum narrow_format
// Rotates the halves of each head by the position's angles (Q14).  A thread a pair of values.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let half = params.head_dim >> 1u;
  let pairs = at(at(params.rows, params.heads), half);
  let origin = select(0u, atomicLoad(&scalars[6]), params.moving == 1u);
  var top = 0u;
  for (var i = id.x; i < pairs; i += groups.x << 8u) {
    let head = i / half;
    let j = i % half;
    let position = (head / params.heads) % params.context + origin;
    let angle = (at(position, half) + j) << 1u;
    let cosine = table[angle];
    let sine = select(table[angle + 1u], -table[angle + 1u], params.backward == 1u);
    let i0 = at(head, params.head_dim) + j;
    let i1 = i0 + half;
    let x0 = mantissa(x[i0 >> 3u], i0 & 7u);
    let x1 = mantissa(x[i1 >> 3u], i1 & 7u);
    let y0 = mul16(x0, cosine) - mul16(x1, sine);
    let y1 = mul16(x0, sine) + mul16(x1, cosine);
    out[i0] = y0;
    out[i1] = y1;
    top = max(top, max(u32(abs(y0)), u32(abs(y1))));
  }
  if (id.x == 0u) {
    set_exponent(params.out_exp, exponent(params.x_exp) - 14);
  }
  raise_max(params.out_max, top, lane);
}
