// Counter-based random bits: additions, rotations and exclusive ors (numbers/random_bits.py).

fn rotate(x: u32, r: u32) -> u32 {
  return (x << r) | (x >> (32u - r));
}

// One block: two words.
fn arx(counter: u32, key: vec2<u32>) -> vec2<u32> {
  var a = counter + key.x;
  var b = rotate(a, 16u) ^ key.y;
  a += b; b = rotate(b, 13u) ^ a;
  a += b; b = rotate(b, 15u) ^ a;
  a += b; b = rotate(b, 26u) ^ a;
  a += b; b = rotate(b, 6u) ^ a;
  a += b; b = rotate(b, 17u) ^ a;
  a += b; b = rotate(b, 29u) ^ a;
  a += b; b = rotate(b, 16u) ^ a;
  a += b; b = rotate(b, 24u) ^ a;
  return vec2<u32>(a, b);
}

// The key of a tensor in this step and micro-batch (words 0 and 1 of the scalars).
fn tensor_key(tensor_id: u32) -> vec2<u32> {
  return arx(tensor_id, vec2<u32>(atomicLoad(&scalars[0]), atomicLoad(&scalars[1])));
}

// Integers in [0, 2^bits) for elements first .. first + 3; first is a multiple of 4.
fn random4(first: u32, key: vec2<u32>, bits: i32) -> vec4<i32> {
  if (bits == 0) {
    return vec4<i32>();
  }
  let words = vec4<u32>(arx(first >> 1u, key), arx((first >> 1u) + 1u, key));
  return vec4<i32>(words >> vec4<u32>(u32(32 - bits) & 31u));
}

// The integer for one element.
fn random1(element: u32, key: vec2<u32>, bits: i32) -> i32 {
  let words = arx(element >> 1u, key);
  let word = select(words.x, words.y, (element & 1u) == 1u);
  return select(i32(word >> (u32(32 - bits) & 31u)), 0i, bits == 0);
}
