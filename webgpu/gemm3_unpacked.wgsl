//! use units index common maximum gemm_store
// GEMM3 (gemm3.wgsl) for devices without packed dot products; no barrier.  Two products a value:
// t = sum a16 bhi + sum ahi blo = 256 hh + mid, whose upper bits move to h before 32 overflow.  A
// workgroup makes a tile of 64 x 64, a thread 8 x 4 of it: rows ty + 8 i, columns tx + 16 j.

const SPILL = 32u; // vectors of 8 values; |t| grows by less than 2^22.01 a value

fn load_a(first: u32, row: u32, vector: u32) -> vec4<u32> {
  return a[first + at(min(row, params.m - 1u), params.a_row >> 3u) + vector];
}

fn load_b(first: u32, column: u32, vector: u32) -> vec4<u32> {
  return b[first + at(min(column, params.n - 1u), params.b_row >> 3u) + vector];
}

fn signed_byte(x: u32, bit: u32) -> i32 {
  return i32(x << (24u - bit)) >> 24u;
}

fn step(hi: u32, lo: u32, bit: u32, b_high: vec4<i32>, b_low: vec4<i32>) -> vec4<i32> {
  let high = signed_byte(hi, bit);
  return mul16x8((high << 8u) + signed_byte(lo, bit), b_high) + mul16x8(high, b_low);
}

@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) tile: vec3<u32>) {
  let row = (tile.y << 6u) + (lane >> 4u);
  let column = (tile.x << 6u) + (lane & 15u);
  let outer = tile.z / params.inner;
  let inner = tile.z % params.inner;
  let first_a = (at(outer, params.a_outer) + at(inner, params.a_inner)) >> 3u;
  let first_b = (at(outer, params.b_outer) + at(inner / params.b_group, params.b_inner)) >> 3u;
  let first_c = at(outer, params.c_outer) + at(inner, params.c_inner);

  var h0 = vec4<i32>(); var t0 = vec4<i32>();
  var h1 = vec4<i32>(); var t1 = vec4<i32>();
  var h2 = vec4<i32>(); var t2 = vec4<i32>();
  var h3 = vec4<i32>(); var t3 = vec4<i32>();
  var h4 = vec4<i32>(); var t4 = vec4<i32>();
  var h5 = vec4<i32>(); var t5 = vec4<i32>();
  var h6 = vec4<i32>(); var t6 = vec4<i32>();
  var h7 = vec4<i32>(); var t7 = vec4<i32>();
  let skipped = params.causal == 1u && tile.x > tile.y;
  let vectors = select(params.k >> 3u, 0u, skipped);
  for (var k0 = 0u; k0 < vectors; k0 += SPILL) {
    for (var v = k0; v < min(k0 + SPILL, vectors); v++) {
      let a0 = load_a(first_a, row, v);
      let a1 = load_a(first_a, row + 8u, v);
      let a2 = load_a(first_a, row + 16u, v);
      let a3 = load_a(first_a, row + 24u, v);
      let a4 = load_a(first_a, row + 32u, v);
      let a5 = load_a(first_a, row + 40u, v);
      let a6 = load_a(first_a, row + 48u, v);
      let a7 = load_a(first_a, row + 56u, v);
      let b0 = load_b(first_b, column, v);
      let b1 = load_b(first_b, column + 16u, v);
      let b2 = load_b(first_b, column + 32u, v);
      let b3 = load_b(first_b, column + 48u, v);
      for (var half = 0u; half < 2u; half++) {
        let front = half == 0u;
        let ah0 = select(a0.y, a0.x, front); let al0 = select(a0.w, a0.z, front);
        let ah1 = select(a1.y, a1.x, front); let al1 = select(a1.w, a1.z, front);
        let ah2 = select(a2.y, a2.x, front); let al2 = select(a2.w, a2.z, front);
        let ah3 = select(a3.y, a3.x, front); let al3 = select(a3.w, a3.z, front);
        let ah4 = select(a4.y, a4.x, front); let al4 = select(a4.w, a4.z, front);
        let ah5 = select(a5.y, a5.x, front); let al5 = select(a5.w, a5.z, front);
        let ah6 = select(a6.y, a6.x, front); let al6 = select(a6.w, a6.z, front);
        let ah7 = select(a7.y, a7.x, front); let al7 = select(a7.w, a7.z, front);
        let bh0 = select(b0.y, b0.x, front); let bl0 = select(b0.w, b0.z, front);
        let bh1 = select(b1.y, b1.x, front); let bl1 = select(b1.w, b1.z, front);
        let bh2 = select(b2.y, b2.x, front); let bl2 = select(b2.w, b2.z, front);
        let bh3 = select(b3.y, b3.x, front); let bl3 = select(b3.w, b3.z, front);
        for (var bit = 0u; bit < 32u; bit += 8u) {
          let b_high = vec4<i32>(
            signed_byte(bh0, bit), signed_byte(bh1, bit), signed_byte(bh2, bit), signed_byte(bh3, bit));
          let b_low = vec4<i32>(
            signed_byte(bl0, bit), signed_byte(bl1, bit), signed_byte(bl2, bit), signed_byte(bl3, bit));
          t0 += step(ah0, al0, bit, b_high, b_low);
          t1 += step(ah1, al1, bit, b_high, b_low);
          t2 += step(ah2, al2, bit, b_high, b_low);
          t3 += step(ah3, al3, bit, b_high, b_low);
          t4 += step(ah4, al4, bit, b_high, b_low);
          t5 += step(ah5, al5, bit, b_high, b_low);
          t6 += step(ah6, al6, bit, b_high, b_low);
          t7 += step(ah7, al7, bit, b_high, b_low);
        }
      }
    }
    h0 += t0 >> vec4<u32>(8u); t0 &= vec4<i32>(255);
    h1 += t1 >> vec4<u32>(8u); t1 &= vec4<i32>(255);
    h2 += t2 >> vec4<u32>(8u); t2 &= vec4<i32>(255);
    h3 += t3 >> vec4<u32>(8u); t3 &= vec4<i32>(255);
    h4 += t4 >> vec4<u32>(8u); t4 &= vec4<i32>(255);
    h5 += t5 >> vec4<u32>(8u); t5 &= vec4<i32>(255);
    h6 += t6 >> vec4<u32>(8u); t6 &= vec4<i32>(255);
    h7 += t7 >> vec4<u32>(8u); t7 &= vec4<i32>(255);
  }

  var top = 0u;
  top = max(top, store4(first_c, row, column, 16u, h0, t0));
  top = max(top, store4(first_c, row + 8u, column, 16u, h1, t1));
  top = max(top, store4(first_c, row + 16u, column, 16u, h2, t2));
  top = max(top, store4(first_c, row + 24u, column, 16u, h3, t3));
  top = max(top, store4(first_c, row + 32u, column, 16u, h4, t4));
  top = max(top, store4(first_c, row + 40u, column, 16u, h5, t5));
  top = max(top, store4(first_c, row + 48u, column, 16u, h6, t6));
  top = max(top, store4(first_c, row + 56u, column, 16u, h7, t7));
  if (lane == 0u && tile.x == 0u && tile.y == 0u && tile.z == 0u) {
    set_exponent(params.out_exp, exponent(params.a_exp) + exponent(params.b_exp) + 16 - i32(params.g));
  }
  raise_max(params.out_max, top, lane);
}
