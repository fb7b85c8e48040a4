/** The choice of a token, as daisychain.generate makes it: the same draws from the same seed. */

const ROTATIONS = [13, 15, 26, 6, 17, 29, 16, 24];
const SEED_KEY = [0x243f6a88, 0x85a308d3];
const DRAW_KEY_STEP = 0xfffffffe;

/**
 * @typedef {object} Sampling
 * @property {number} temperature 0 is greedy
 * @property {number} topK 0 means no limit
 * @property {number} topP
 * @property {number} seed
 */

const rotate = (word, by) => ((word << by) | (word >>> (32 - by))) >>> 0;

/** Two u32 words of a counter and a key; see daisychain.numbers.random_bits. */
function arx(counter, [keyA, keyB]) {
  let a = (counter + keyA) >>> 0;
  let b = (rotate(a, 16) ^ keyB) >>> 0;
  for (const by of ROTATIONS) {
    a = (a + b) >>> 0;
    b = (rotate(b, by) ^ a) >>> 0;
  }
  return [a, b];
}

/** A number from 0 up to 1 for token `number` of a text. */
function draw(seed, number) {
  const [high, low] = arx(number, arx(DRAW_KEY_STEP, arx(seed >>> 0, SEED_KEY)));
  return (high * 2 ** 21 + (low >>> 11)) / 2 ** 53;
}

/**
 * Picks token `number` of a text: it, its probability at temperature 1, and the likeliest tokens.
 * @param {Int32Array} mantissas
 * @param {number} exponent
 * @param {Sampling} sampling
 * @param {number} number
 * @param {number} shown
 */
export function choose(mantissas, exponent, sampling, number, shown = 5) {
  const unit = 2 ** exponent;
  const kept = sampling.temperature > 0 ? sampling.topK || mantissas.length : 1;
  const order = largest(mantissas, Math.max(kept, shown));
  const top = mantissas[order[0]];
  const weight = (id, temperature) => Math.exp(((mantissas[id] - top) * unit) / temperature);
  let token = order[0];
  if (sampling.temperature > 0) {
    token = pick(order.slice(0, kept), (id) => weight(id, sampling.temperature), sampling, number);
  }
  let total = 0;
  for (const id of mantissas.keys()) total += weight(id, 1);
  const likeliest = order.slice(0, shown).map((id) => [id, weight(id, 1) / total]);
  return { token, probability: weight(token, 1) / total, likeliest };
}

/** The ids of the `count` largest mantissas, the largest first; of equal ones the lowest id. */
function largest(mantissas, count) {
  if (count >= mantissas.length) {
    return Array.from(mantissas.keys()).sort((a, b) => mantissas[b] - mantissas[a] || a - b);
  }
  const best = [];
  for (let id = 0; id < mantissas.length; id++) {
    if (best.length === count && mantissas[id] <= mantissas[best[count - 1]]) continue;
    let at = best.length;
    while (at > 0 && mantissas[best[at - 1]] < mantissas[id]) at--;
    best.splice(at, 0, id);
    if (best.length > count) best.pop();
  }
  return best;
}

/** One of `kept` (likeliest first) by weight, after the cut at `topP`. */
function pick(kept, weightOf, { topP, seed }, number) {
  const weights = kept.map(weightOf);
  const bound = topP * weights.reduce((sum, weight) => sum + weight, 0);
  let mass = 0;
  let count = 0;
  while (count < kept.length && (count === 0 || mass < bound)) mass += weights[count++];
  let target = mass * draw(seed, number);
  for (let i = 0; i < count; i++) {
    target -= weights[i];
    if (target < 0) return kept[i];
  }
  return kept[count - 1];
}
