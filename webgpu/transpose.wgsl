//! use index
// Narrow to narrow, in blocks of 8 x 8: eight vectors in, eight out.

// Bytes of rows a, b, c, d turned into columns.
fn turned(a: u32, b: u32, c: u32, d: u32) -> vec4<u32> {
  let even = 0x00ff00ffu;
  let odd = 0xff00ff00u;
  let ab = vec2<u32>((a & even) | ((b & even) << 8u), ((a & odd) >> 8u) | (b & odd));
  let cd = vec2<u32>((c & even) | ((d & even) << 8u), ((c & odd) >> 8u) | (d & odd));
  let lower = (ab & vec2<u32>(0xffffu)) | (cd << vec2<u32>(16u));
  let upper = (ab >> vec2<u32>(16u)) | (cd & vec2<u32>(0xffff0000u));
  return vec4<u32>(lower, upper);
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let block_cols = params.cols >> 3u;
  let block_rows = at(params.group, params.rows >> 3u);
  let batch_blocks = at(block_rows, block_cols);
  let blocks = at(at(params.outer, params.inner), batch_blocks);
  let stride = params.in_row >> 3u;
  for (var i = id.x; i < blocks; i += groups.x << 8u) {
    let batch = i / batch_blocks;
    let block = i % batch_blocks;
    let r = block / block_cols;
    let c = block % block_cols;
    let g = r / (params.rows >> 3u);
    let row = (r % (params.rows >> 3u)) << 3u;
    let origin = at(batch / params.inner, params.in_outer) + at(batch % params.inner, params.in_inner) + at(g, params.in_group)
               + at(row, params.in_row);
    let s = (origin >> 3u) + c;
    let v0 = x[s];
    let v1 = x[s + stride];
    let v2 = x[s + (stride << 1u)];
    let v3 = x[s + at(stride, 3u)];
    let v4 = x[s + (stride << 2u)];
    let v5 = x[s + at(stride, 5u)];
    let v6 = x[s + at(stride, 6u)];
    let v7 = x[s + at(stride, 7u)];
    let hi03 = turned(v0.x, v1.x, v2.x, v3.x);
    let hi47 = turned(v4.x, v5.x, v6.x, v7.x);
    let lo03 = turned(v0.z, v1.z, v2.z, v3.z);
    let lo47 = turned(v4.z, v5.z, v6.z, v7.z);
    let hi03b = turned(v0.y, v1.y, v2.y, v3.y);
    let hi47b = turned(v4.y, v5.y, v6.y, v7.y);
    let lo03b = turned(v0.w, v1.w, v2.w, v3.w);
    let lo47b = turned(v4.w, v5.w, v6.w, v7.w);
    let t = at(batch, at(params.cols, block_rows)) + at(c << 3u, block_rows) + r;
    out[t] = vec4<u32>(hi03.x, hi47.x, lo03.x, lo47.x);
    out[t + block_rows] = vec4<u32>(hi03.y, hi47.y, lo03.y, lo47.y);
    out[t + (block_rows << 1u)] = vec4<u32>(hi03.z, hi47.z, lo03.z, lo47.z);
    out[t + at(block_rows, 3u)] = vec4<u32>(hi03.w, hi47.w, lo03.w, lo47.w);
    out[t + (block_rows << 2u)] = vec4<u32>(hi03b.x, hi47b.x, lo03b.x, lo47b.x);
    out[t + at(block_rows, 5u)] = vec4<u32>(hi03b.y, hi47b.y, lo03b.y, lo47b.y);
    out[t + at(block_rows, 6u)] = vec4<u32>(hi03b.z, hi47b.z, lo03b.z, lo47b.z);
    out[t + at(block_rows, 7u)] = vec4<u32>(hi03b.w, hi47b.w, lo03b.w, lo47b.w);
  }
}
