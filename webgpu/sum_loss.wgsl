//! use
// record[offset] += sum(loss >> 16), record[offset + 1] += sum(loss & 0xffff).

var<workgroup> total_high: atomic<u32>;
var<workgroup> total_low: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
  var high = 0u;
  var low = 0u;
  for (var i = lane; i < params.count; i += 256u) {
    high += u32(loss[i] >> 16u);
    low += u32(loss[i]) & 0xffffu;
  }
  atomicAdd(&total_high, high);
  atomicAdd(&total_low, low);
  workgroupBarrier();
  if (lane == 0u) {
    record[params.offset] += atomicLoad(&total_high);
    record[params.offset + 1u] += atomicLoad(&total_low);
  }
}
