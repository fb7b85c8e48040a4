//! use units index common maximum gemm_dots gemm_store
// C = A B^T: hh = sum hi hi and mid = sum (hi lo + lo hi), both exact; lo lo is dropped.
// C = (hh << g) + ((mid + half) >> (8 - g)).  A workgroup makes a tile of 64 x 64, a thread 8 x 4 of it:
// rows ty + 8 i, columns tx + 16 j.  A vector holds 8 values of a row; 4 vectors a row are staged.

const PITCH = 66u; // 64 rows and padding against bank conflicts

var<workgroup> tile_a: array<vec4<u32>, 264>;
var<workgroup> tile_b: array<vec4<u32>, 264>;

@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) tile: vec3<u32>) {
  let tx = lane & 15u;
  let ty = lane >> 4u;
  let m0 = tile.y << 6u;
  let n0 = tile.x << 6u;
  let outer = tile.z / params.inner;
  let inner = tile.z % params.inner;
  let first_a = (at(outer, params.a_outer) + at(inner, params.a_inner)) >> 3u;
  let first_b = (at(outer, params.b_outer) + at(inner / params.b_group, params.b_inner)) >> 3u;
  let first_c = at(outer, params.c_outer) + at(inner, params.c_inner);

  var h0 = vec4<i32>(); var h1 = vec4<i32>(); var h2 = vec4<i32>(); var h3 = vec4<i32>();
  var h4 = vec4<i32>(); var h5 = vec4<i32>(); var h6 = vec4<i32>(); var h7 = vec4<i32>();
  var x0 = vec4<i32>(); var x1 = vec4<i32>(); var x2 = vec4<i32>(); var x3 = vec4<i32>();
  var x4 = vec4<i32>(); var x5 = vec4<i32>(); var x6 = vec4<i32>(); var x7 = vec4<i32>();

  // Staging: this thread brings vector lane % 4 of rows lane / 4 and lane / 4 + 32.
  let column = lane & 3u;
  let row = lane >> 2u;
  let slot = at(column, PITCH) + row;
  let skipped = params.causal == 1u && n0 > m0 + 63u;
  let vectors = select(params.k >> 3u, 0u, skipped);
  for (var k0 = 0u; k0 < vectors; k0 += 4u) {
    tile_a[slot] = load_a(first_a, m0 + row, k0 + column, vectors);
    tile_a[slot + 32u] = load_a(first_a, m0 + row + 32u, k0 + column, vectors);
    tile_b[slot] = load_b(first_b, n0 + row, k0 + column, vectors);
    tile_b[slot + 32u] = load_b(first_b, n0 + row + 32u, k0 + column, vectors);
    workgroupBarrier();
    for (var v = 0u; v < min(4u, vectors - k0); v++) {
      let from_a = at(v, PITCH) + ty;
      let from_b = at(v, PITCH) + tx;
      let vb = array<vec4<u32>, 4>(
        tile_b[from_b], tile_b[from_b + 16u], tile_b[from_b + 32u], tile_b[from_b + 48u]);
      let a0 = tile_a[from_a]; h0 += high4(a0, vb); x0 += middle4(a0, vb);
      let a1 = tile_a[from_a + 8u]; h1 += high4(a1, vb); x1 += middle4(a1, vb);
      let a2 = tile_a[from_a + 16u]; h2 += high4(a2, vb); x2 += middle4(a2, vb);
      let a3 = tile_a[from_a + 24u]; h3 += high4(a3, vb); x3 += middle4(a3, vb);
      let a4 = tile_a[from_a + 32u]; h4 += high4(a4, vb); x4 += middle4(a4, vb);
      let a5 = tile_a[from_a + 40u]; h5 += high4(a5, vb); x5 += middle4(a5, vb);
      let a6 = tile_a[from_a + 48u]; h6 += high4(a6, vb); x6 += middle4(a6, vb);
      let a7 = tile_a[from_a + 56u]; h7 += high4(a7, vb); x7 += middle4(a7, vb);
    }
    workgroupBarrier();
  }

  let r = m0 + ty;
  let c = n0 + tx;
  var top = store4(first_c, r, c, 16u, h0, x0);
  top = max(top, store4(first_c, r + 8u, c, 16u, h1, x1));
  top = max(top, store4(first_c, r + 16u, c, 16u, h2, x2));
  top = max(top, store4(first_c, r + 24u, c, 16u, h3, x3));
  top = max(top, store4(first_c, r + 32u, c, 16u, h4, x4));
  top = max(top, store4(first_c, r + 40u, c, 16u, h5, x5));
  top = max(top, store4(first_c, r + 48u, c, 16u, h6, x6));
  top = max(top, store4(first_c, r + 56u, c, 16u, h7, x7));
  if (lane == 0u && tile.x == 0u && tile.y == 0u && tile.z == 0u) {
    set_exponent(params.out_exp, exponent(params.a_exp) + exponent(params.b_exp) + 16 - i32(params.g));
  }
  raise_max(params.out_max, top, lane);
}
