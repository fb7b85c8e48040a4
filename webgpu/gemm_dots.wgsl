// GEMM3 by packed dot products: a vector holds 8 values, x and y their hi, z and w their lo bytes.

fn high(a: vec4<u32>, b: vec4<u32>) -> i32 {
  return dot4(a.x, b.x) + dot4(a.y, b.y);
}

fn middle(a: vec4<u32>, b: vec4<u32>) -> i32 {
  return dot4(a.x, b.z) + dot4(a.y, b.w) + dot4(a.z, b.x) + dot4(a.w, b.y);
}

fn high4(a: vec4<u32>, b: array<vec4<u32>, 4>) -> vec4<i32> {
  return vec4<i32>(high(a, b[0]), high(a, b[1]), high(a, b[2]), high(a, b[3]));
}

fn middle4(a: vec4<u32>, b: array<vec4<u32>, 4>) -> vec4<i32> {
  return vec4<i32>(middle(a, b[0]), middle(a, b[1]), middle(a, b[2]), middle(a, b[3]));
}

fn load_a(first: u32, row: u32, vector: u32, end: u32) -> vec4<u32> {
  if (row < params.m && vector < end) {
    return a[first + at(row, params.a_row >> 3u) + vector];
  }
  return vec4<u32>();
}

fn load_b(first: u32, row: u32, vector: u32, end: u32) -> vec4<u32> {
  if (row < params.n && vector < end) {
    return b[first + at(row, params.b_row >> 3u) + vector];
  }
  return vec4<u32>();
}
