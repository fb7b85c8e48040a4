// The result of GEMM3: (hh << g) + ((mid + half) >> (8 - g)), within the matrix; returns its magnitude.

fn store(first: u32, row: u32, column: u32, hh: i32, mid: i32) -> u32 {
  if (row >= params.m || column >= params.n) {
    return 0u;
  }
  var c = (hh << params.g) + ((mid + (1i << (7u - params.g))) >> (8u - params.g));
  if (params.causal == 1u && column > row) {
    c = 0;
  }
  out[first + at(row, params.c_row) + column] = c;
  return u32(abs(c));
}

// Columns column, column + pitch, ...
fn store4(first: u32, row: u32, column: u32, pitch: u32, hh: vec4<i32>, mid: vec4<i32>) -> u32 {
  let front = max(store(first, row, column, hh.x, mid.x), store(first, row, column + pitch, hh.y, mid.y));
  let c = column + (pitch << 1u);
  return max(front, max(store(first, row, c, hh.z, mid.z), store(first, row, c + pitch, hh.w, mid.w)));
}
