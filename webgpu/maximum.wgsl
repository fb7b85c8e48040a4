// Maxima of outputs: integer atomics, so the order of threads does not matter.

var<workgroup> group_max: atomic<u32>;
var<workgroup> second_max: atomic<u32>;

// Raises a scalar word to the largest value in the workgroup.  Called once, by all its threads.
fn raise_max(word: u32, value: u32, lane: u32) {
  atomicMax(&group_max, value);
  workgroupBarrier();
  if (lane == 0u) {
    atomicMax(&scalars[word], atomicLoad(&group_max));
  }
}

// The same for a second output.
fn raise_second_max(word: u32, value: u32, lane: u32) {
  atomicMax(&second_max, value);
  workgroupBarrier();
  if (lane == 0u) {
    atomicMax(&scalars[word], atomicLoad(&second_max));
  }
}

// Unsigned comparisons: the signed max(abs(x), abs(y)) is miscompiled on NVIDIA (driver 580, Vulkan);
// docs/EXPERIMENTS.md.
fn largest(m: vec4<i32>) -> u32 {
  let a = vec4<u32>(abs(m));
  return max(max(a.x, a.y), max(a.z, a.w));
}
