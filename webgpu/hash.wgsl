// The mixing of the weight hash: one ChaCha quarter round (RFC 8439, 2.1) a word.

fn turn(x: u32, r: u32) -> u32 {
  return (x << r) | (x >> (32u - r));
}

fn initial_state(lane: u32) -> vec4<u32> {
  return vec4<u32>(0x61707865u ^ lane, 0x3320646eu, 0x79622d32u, 0x6b206574u);
}

fn absorb(state: vec4<u32>, word: u32) -> vec4<u32> {
  var s = state;
  s.x ^= word;
  s.x += s.y; s.w = turn(s.w ^ s.x, 16u);
  s.z += s.w; s.y = turn(s.y ^ s.z, 12u);
  s.x += s.y; s.w = turn(s.w ^ s.x, 8u);
  s.z += s.w; s.y = turn(s.y ^ s.z, 7u);
  return s;
}

fn absorb4(state: vec4<u32>, words: vec4<u32>) -> vec4<u32> {
  return absorb(absorb(absorb(absorb(state, words.x), words.y), words.z), words.w);
}
