//! use
// position += by.

@compute @workgroup_size(1)
fn main() {
  atomicAdd(&scalars[6], params.by);
}
