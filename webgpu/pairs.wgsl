// Exact sums of up to 65,536 products below 2^30 in magnitude: value = high 2^16 + low.

struct Pair { high: i32, low: u32 }

var<workgroup> sum_high: atomic<i32>;
var<workgroup> sum_low: atomic<u32>;

fn pair_add(sum: Pair, x: i32) -> Pair {
  return Pair(sum.high + (x >> 16u), sum.low + (u32(x) & 0xffffu));
}

// The sum over the workgroup.  Called once, by all its threads.
fn pair_total(part: Pair) -> Pair {
  atomicAdd(&sum_high, part.high);
  atomicAdd(&sum_low, part.low);
  workgroupBarrier();
  return Pair(atomicLoad(&sum_high), atomicLoad(&sum_low));
}

// (value + 2^(s-1)) >> s, 1 <= s <= 46; the result fits 32 bits.
fn pair_shift(sum: Pair, s: u32) -> i32 {
  var high = sum.high + i32(sum.low >> 16u);
  var low = sum.low & 0xffffu;
  if (s > 16u) {
    return (high + ((1i << (s - 16u)) >> 1u)) >> (s - 16u);
  }
  low += 1u << (s - 1u);
  high += i32(low >> 16u);
  return (high << (16u - s)) + i32((low & 0xffffu) >> s);
}

// Sums that are not negative, as (low, high) words.
fn pair_words(sum: Pair) -> vec2<u32> {
  let high = u32(sum.high) + (sum.low >> 16u);
  return vec2<u32>((high << 16u) | (sum.low & 0xffffu), high >> 16u);
}
