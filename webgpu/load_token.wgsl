//! use
// ids[0] = prompt[position].

@compute @workgroup_size(1)
fn main() {
  ids[0] = prompt[min(atomicLoad(&scalars[6]), params.count - 1u)];
}
