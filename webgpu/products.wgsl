// Products wider than 16 x 16 bits, built on mul16.

fn mul16x4(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
  return vec4<i32>(mul16(a.x, b.x), mul16(a.y, b.y), mul16(a.z, b.z), mul16(a.w, b.w));
}

// round(x y / 2^k), half up.  |x| <= 2^30 - 2^22, |y| <= 32639, k >= 0; 0 for k > 45.
fn mulq(x: i32, y: i32, k: i32) -> i32 {
  let xh = (x + 16384) >> 15u;
  let ph = mul16(xh, y);
  let pl = mul16(x - (xh << 15u), y);
  if (k <= 15) {
    let s = u32(k) & 31u;
    return (ph << ((15u - s) & 31u)) + ((pl + ((1i << s) >> 1u)) >> s);
  }
  let s = u32(k - 15) & 31u;
  return select((ph + (pl >> 15u) + (1i << ((s - 1u) & 31u))) >> s, 0i, k > 45);
}
