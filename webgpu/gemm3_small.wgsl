//! use units index common maximum gemm_dots gemm_store
// GEMM3 (gemm3.wgsl) for results of few tiles: a workgroup makes a tile of 32 x 32, its two parts of 64
// threads each half of K, a thread 4 x 4: rows ty + 8 i, columns tx + 8 j.  4 vectors a row are staged;
// the row index is twisted by the vector against bank conflicts.

var<workgroup> tile_a: array<vec4<u32>, 256>;
var<workgroup> tile_b: array<vec4<u32>, 256>;

@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) tile: vec3<u32>) {
  let part = thread >> 6u;
  let lane = thread & 63u;
  let tx = lane & 7u;
  let ty = lane >> 3u;
  let m0 = tile.y << 5u;
  let n0 = tile.x << 5u;
  let outer = tile.z / params.inner;
  let inner = tile.z % params.inner;
  let first_a = (at(outer, params.a_outer) + at(inner, params.a_inner)) >> 3u;
  let first_b = (at(outer, params.b_outer) + at(inner / params.b_group, params.b_inner)) >> 3u;
  let first_c = at(outer, params.c_outer) + at(inner, params.c_inner);

  var h0 = vec4<i32>(); var h1 = vec4<i32>(); var h2 = vec4<i32>(); var h3 = vec4<i32>();
  var x0 = vec4<i32>(); var x1 = vec4<i32>(); var x2 = vec4<i32>(); var x3 = vec4<i32>();

  // Staging: this thread brings vector lane % 4 of rows lane / 4 and lane / 4 + 16.
  let column = lane & 3u;
  let row = lane >> 2u;
  let slot = (part << 7u) + (column << 5u) + (row ^ (column << 1u));
  let skipped = params.causal == 1u && tile.x > tile.y;
  let vectors = select(params.k >> 3u, 0u, skipped);
  let share = ((vectors + 7u) >> 3u) << 2u;
  let begin = select(0u, share, part == 1u);
  let end = min(begin + share, vectors);
  for (var k0 = 0u; k0 < share; k0 += 4u) {
    let vector = begin + k0 + column;
    tile_a[slot] = load_a(first_a, m0 + row, vector, end);
    tile_a[slot + 16u] = load_a(first_a, m0 + row + 16u, vector, end);
    tile_b[slot] = load_b(first_b, n0 + row, vector, end);
    tile_b[slot + 16u] = load_b(first_b, n0 + row + 16u, vector, end);
    workgroupBarrier();
    for (var v = 0u; v < 4u; v++) {
      let staged = (part << 7u) + (v << 5u);
      let from_a = staged + (ty ^ (v << 1u));
      let from_b = staged + (tx ^ (v << 1u));
      let vb = array<vec4<u32>, 4>(
        tile_b[from_b], tile_b[from_b + 8u], tile_b[from_b + 16u], tile_b[from_b + 24u]);
      let a0 = tile_a[from_a]; h0 += high4(a0, vb); x0 += middle4(a0, vb);
      let a1 = tile_a[from_a + 8u]; h1 += high4(a1, vb); x1 += middle4(a1, vb);
      let a2 = tile_a[from_a + 16u]; h2 += high4(a2, vb); x2 += middle4(a2, vb);
      let a3 = tile_a[from_a + 24u]; h3 += high4(a3, vb); x3 += middle4(a3, vb);
    }
    workgroupBarrier();
  }

  // The second part hands its sums to the first.
  if (part == 1u) {
    tile_a[lane] = bitcast<vec4<u32>>(h0); tile_b[lane] = bitcast<vec4<u32>>(x0);
    tile_a[lane + 64u] = bitcast<vec4<u32>>(h1); tile_b[lane + 64u] = bitcast<vec4<u32>>(x1);
    tile_a[lane + 128u] = bitcast<vec4<u32>>(h2); tile_b[lane + 128u] = bitcast<vec4<u32>>(x2);
    tile_a[lane + 192u] = bitcast<vec4<u32>>(h3); tile_b[lane + 192u] = bitcast<vec4<u32>>(x3);
  }
  workgroupBarrier();
  var top = 0u;
  if (part == 0u) {
    h0 += bitcast<vec4<i32>>(tile_a[lane]); x0 += bitcast<vec4<i32>>(tile_b[lane]);
    h1 += bitcast<vec4<i32>>(tile_a[lane + 64u]); x1 += bitcast<vec4<i32>>(tile_b[lane + 64u]);
    h2 += bitcast<vec4<i32>>(tile_a[lane + 128u]); x2 += bitcast<vec4<i32>>(tile_b[lane + 128u]);
    h3 += bitcast<vec4<i32>>(tile_a[lane + 192u]); x3 += bitcast<vec4<i32>>(tile_b[lane + 192u]);
    let r = m0 + ty;
    let c = n0 + tx;
    top = store4(first_c, r, c, 8u, h0, x0);
    top = max(top, store4(first_c, r + 8u, c, 8u, h1, x1));
    top = max(top, store4(first_c, r + 16u, c, 8u, h2, x2));
    top = max(top, store4(first_c, r + 24u, c, 8u, h3, x3));
  }
  if (thread == 0u && tile.x == 0u && tile.y == 0u && tile.z == 0u) {
    set_exponent(params.out_exp, exponent(params.a_exp) + exponent(params.b_exp) + 16 - i32(params.g));
  }
  raise_max(params.out_max, top, thread);
}
