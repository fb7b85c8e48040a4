//! use units common lanes words
//! atomic record
// Sum of squares of the nearest-narrowed tensor.  The sum of each block of 2,048 values, below 2^41, is
// added to record[offset ..] as 16-bit limbs; record[offset + 4] = 2 exponent.

var<workgroup> block_sum: array<atomic<u32>, 2>;

@compute @workgroup_size(LONG_ROW_LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let shift = nearest_shift(maximum(params.x_max));
  let blocks = (params.count + 2047u) >> 11u;
  for (var block = group.x; block < blocks; block += groups.x) {
    let end = min((block + 1u) << 11u, params.count);
    var low = 0u;
    var high = 0u;
    for (var i = (block << 11u) + lane; i < end; i += LONG_ROW_LANES) {
      let m = rounding_shift(x[i], shift);
      let square = u32(mul16(m, m));
      low += square & 0xffffu;
      high += square >> 16u;
    }
    atomicAdd(&block_sum[0], low);
    atomicAdd(&block_sum[1], high);
    workgroupBarrier();
    if (lane == 0u) {
      let s0 = atomicExchange(&block_sum[0], 0u);
      let s1 = atomicExchange(&block_sum[1], 0u) + (s0 >> 16u);
      atomicAdd(&record[params.offset], s0 & 0xffffu);
      atomicAdd(&record[params.offset + 1u], s1 & 0xffffu);
      atomicAdd(&record[params.offset + 2u], s1 >> 16u);
    }
    workgroupBarrier();
  }
  if (group.x == 0u && lane == 0u) {
    let e = exponent(params.x_exp) + shift;
    atomicStore(&record[params.offset + 4u], u32(e + e));
  }
}
