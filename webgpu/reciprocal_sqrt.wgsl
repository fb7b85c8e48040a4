// s^(-1/2) for s >= 1: table value and one Newton step.

// root: Q28 in (2^27, 2^28]; s^(-1/2) = root 2^(-28 - exponent/2), exponent even.
struct ReciprocalSqrt { root: i32, exponent: i32 }

// Entry i (256..1023) of rsqrt_table in numbers/tables.py, round(2^14 / sqrt((i + 1/2)/256)): half
// of the square root of 2^39/(2 i + 1), rounded.
fn rsqrt_entry(i: u32) -> i32 {
  let d = (i << 1u) + 1u;
  let q = (1u << 31u) / d;
  let x = (q << 8u) + (((1u << 31u) % d) << 8u) / d;
  var root = 0u;
  var rest = 0u;
  for (var shift = 30i; shift >= 0; shift -= 2) {
    rest = (rest << 2u) | ((x >> u32(shift)) & 3u);
    let trial = (root << 2u) | 1u;
    root <<= 1u;
    if (rest >= trial) {
      rest -= trial;
      root |= 1u;
    }
  }
  return i32((root + 1u) >> 1u);
}

fn reciprocal_sqrt(s: vec2<u32>) -> ReciprocalSqrt {
  var k = bit_length64(s) - 29;
  k += 1 - (k & 1);
  let v = shifted64(s, k);
  let r0 = rsqrt_entry(v >> 19u);
  let d = (1i << 27u) - mulq(mulq(i32(v), r0, 14), r0, 14);
  let step = rounding_shift(mul16(r0, rounding_shift(d, 4)), 10);
  return ReciprocalSqrt((r0 << 14u) + step, k + 27);
}
