// The functions of maximum.wgsl without a barrier, for adapters that run on a CPU.

fn raise_max(word: u32, value: u32, lane: u32) {
  if (value > atomicLoad(&scalars[word])) {
    atomicMax(&scalars[word], value);
  }
}

fn raise_second_max(word: u32, value: u32, lane: u32) {
  raise_max(word, value, lane);
}

// Unsigned comparisons: the signed max(abs(x), abs(y)) is miscompiled on NVIDIA (driver 580, Vulkan);
// docs/EXPERIMENTS.md.
fn largest(m: vec4<i32>) -> u32 {
  let a = vec4<u32>(abs(m));
  return max(max(a.x, a.y), max(a.z, a.w));
}
