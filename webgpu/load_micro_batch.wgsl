//! use index
// Entry j = scalars[7] of inputs: two key words, ids, targets.

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
  let entry = atomicLoad(&scalars[7]);
  let first = at(entry, (params.count << 1u) + 2u);
  for (var i = lane; i < params.count; i += 256u) {
    ids[i] = inputs[first + 2u + i];
    targets[i] = inputs[first + 2u + params.count + i];
  }
  workgroupBarrier();
  if (lane == 0u) {
    atomicStore(&scalars[0], inputs[first]);
    atomicStore(&scalars[1], inputs[first + 1u]);
    atomicStore(&scalars[7], entry + 1u);
  }
}
