//! use units index common lanes maximum products pairs words reciprocal_sqrt
// xhat = x / rms(x).  A workgroup a row: the row is brought to 15 bits by its own maximum, so that no
// row loses bits to a larger one.

var<workgroup> row_top: atomic<u32>;

// cols at the scale of the squares: cols 2^sh, sh <= 32.
fn epsilon(sh: i32) -> vec2<u32> {
  if (sh <= 0) {
    return vec2<u32>(params.cols >> u32(min(-sh, 31)), 0u);
  }
  if (sh >= 32) {
    return vec2<u32>(0u, params.cols);
  }
  return vec2<u32>(params.cols << u32(sh), params.cols >> u32(32 - sh));
}

@compute @workgroup_size(ROW_LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let row = row_of(group);
  if (row >= params.rows) {
    return;
  }
  let first = at(row, params.cols);
  var top = 0u;
  for (var c = lane; c < params.cols; c += ROW_LANES) {
    top = max(top, u32(abs(x[first + c])));
  }
  atomicMax(&row_top, top);
  workgroupBarrier();
  let ex = exponent(params.x_exp);
  let shift = max(shift_to_15_bits(atomicLoad(&row_top)), -26 - ex);
  let row_exp = shift + ex;

  var part = Pair(0, 0u);
  for (var c = lane; c < params.cols; c += ROW_LANES) {
    let m = rounding_shift(x[first + c], shift);
    part = pair_add(part, mul16(m, m));
  }
  // epsilon = 2^-20 a value, at the row's own scale
  var squares = add64(pair_words(pair_total(part)), epsilon(-20 - row_exp - row_exp));
  squares.x = max(squares.x, select(0u, 1u, squares.y == 0u));
  let inverse = reciprocal_sqrt(squares);
  let root = mulq(inverse.root, params.root_m, 15);
  let cut = shift_to_15_bits(u32(root));
  let root16 = rounding_shift(root, cut);
  let root_exp = cut - 28 - (inverse.exponent >> 1u) + params.root_e + 15;

  var out_top = 0u;
  for (var c = lane; c < params.cols; c += ROW_LANES) {
    let m = rounding_shift(mul16(rounding_shift(x[first + c], shift), root16), params.static_e - root_exp);
    out[first + c] = m;
    out_top = max(out_top, u32(abs(m)));
  }
  if (lane == 0u) {
    inv_rms[row] = root16;
    inv_exp[row] = root_exp - row_exp;
    atomicMax(&scalars[params.rows_max], u32(root_exp - row_exp + 4096));
    set_exponent(params.out_exp, params.static_e);
  }
  raise_max(params.out_max, out_top, lane);
}
