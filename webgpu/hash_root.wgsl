//! use hash
// One lane absorbs all words of ranges, then their number.

@compute @workgroup_size(1)
fn main() {
  var state = initial_state(0u);
  for (var i = 0u; i < params.count; i++) {
    state = absorb(state, ranges[i]);
  }
  state = absorb(state, params.count);
  record[params.offset] = state.x;
  record[params.offset + 1u] = state.y;
  record[params.offset + 2u] = state.z;
  record[params.offset + 3u] = state.w;
}
