// Addresses.  Outside the units this is the only file with a product, and its operands are indices.

fn at(row: u32, stride: u32) -> u32 {
  return row * stride;
}

// A workgroup a row: the launch is at most 32,768 wide.
fn row_of(group: vec3<u32>) -> u32 {
  return (group.y << 15u) + group.x;
}
