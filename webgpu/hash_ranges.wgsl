//! use index hash
// A workgroup hashes a range of 16,384 words: lane l absorbs words l, l + 256, ..., then their number;
// a binary tree joins the lanes.

var<workgroup> states: array<vec4<u32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let range = row_of(group);
  let first = range << 14u;
  if (first >= params.count) {
    return;
  }
  let end = min(first + 16384u, params.count);
  var state = initial_state(lane);
  var absorbed = 0u;
  for (var i = first + lane; i < end; i += 256u) {
    state = absorb(state, x[i]);
    absorbed += 1u;
  }
  state = absorb(state, absorbed);
  states[lane] = state;
  for (var stride = 128u; stride > 0u; stride >>= 1u) {
    workgroupBarrier();
    if (lane < stride) {
      state = absorb4(state, states[lane + stride]);
      states[lane] = state;
    }
  }
  if (lane == 0u) {
    let slot = (params.first_range + range) << 2u;
    ranges[slot] = state.x;
    ranges[slot + 1u] = state.y;
    ranges[slot + 2u] = state.z;
    ranges[slot + 3u] = state.w;
  }
}
