// The benchmark's model in jax-js on its WebAssembly backend, float32: one jitted training step.
// It takes one thread, or as many as there are processors on an isolated page.
// Messages: {op: "start", shape, threads} and {op: "step"}; answers {ms, loss}.
import * as jax from "@jax-js/jax";

const { numpy: np, nn, jit, valueAndGrad, tree } = jax;

/** @param {{width: number, layers: number, heads: number, hidden: number, context: number, rows: number, vocabulary: number}} shape */
async function build({ width, layers, heads, hidden, context, rows, vocabulary }) {
  await jax.init("wasm");
  jax.defaultDevice("wasm");
  const size = width / heads;
  const tokens = rows * context;
  const half = size / 2;
  const uniform = (shape, scale) => {
    const count = shape.reduce((a, b) => a * b);
    const values = Float32Array.from({ length: count }, () => (Math.random() - 0.5) * scale);
    return np.array(values, { shape, dtype: np.float32 });
  };
  const layer = () => ({
    norm1: np.ones([width]),
    q: uniform([width, width], 0.4),
    k: uniform([width, width], 0.4),
    v: uniform([width, width], 0.4),
    o: uniform([width, width], 0.2),
    norm2: np.ones([width]),
    gate: uniform([width, hidden], 0.4),
    up: uniform([width, hidden], 0.4),
    down: uniform([hidden, width], 0.2),
  });
  let weights = {
    embedding: uniform([vocabulary, width], 0.07),
    norm: np.ones([width]),
    layers: Array.from({ length: layers }, layer),
  };
  let first = tree.map((x) => np.zerosLike(x.ref), weights);
  let second = tree.map((x) => np.zerosLike(x.ref), weights);
  const table = (f) => {
    const angle = (i) => Math.floor(i / half) * 10000 ** (-(i % half) / half);
    const values = Float32Array.from({ length: context * half }, (_, i) => f(angle(i)));
    return np.array(values, { shape: [1, 1, context, half], dtype: np.float32 });
  };
  const cos = table(Math.cos);
  const sin = table(Math.sin);
  const future = (i) => (i % context > Math.floor(i / context) ? -1e9 : 0);
  const mask = np.array(
    Float32Array.from({ length: context * context }, (_, i) => future(i)),
    { shape: [1, 1, context, context], dtype: np.float32 },
  );

  const normed = (x, weight) => {
    const mean = np.mean(np.square(x.ref), -1, { keepdims: true });
    return x.mul(np.reciprocal(np.sqrt(mean.add(1e-6)))).mul(weight);
  };
  const split = (x) => np.transpose(x.reshape([rows, context, heads, size]), [0, 2, 1, 3]);
  const turn = (x) => {
    const [a, b] = np.split(x, 2, -1);
    const left = a.ref.mul(cos.ref).sub(b.ref.mul(sin.ref));
    return np.concatenate([left, a.mul(sin.ref).add(b.mul(cos.ref))], -1);
  };
  const loss = (p, ids, targets) => {
    let x = np.take(p.embedding.ref, ids, 0);
    for (const l of p.layers) {
      let h = normed(x.ref, l.norm1);
      const q = turn(split(np.matmul(h.ref, l.q)));
      const k = turn(split(np.matmul(h.ref, l.k)));
      const v = split(np.matmul(h, l.v));
      const scores = np.matmul(q, np.transpose(k, [0, 1, 3, 2])).mul(size ** -0.5);
      const mixed = np.matmul(nn.softmax(scores.add(mask.ref), -1), v);
      x = x.add(np.matmul(np.transpose(mixed, [0, 2, 1, 3]).reshape([tokens, width]), l.o));
      h = normed(x.ref, l.norm2);
      const gated = nn.silu(np.matmul(h.ref, l.gate)).mul(np.matmul(h, l.up));
      x = x.add(np.matmul(gated, l.down));
    }
    const logits = np.matmul(normed(x, p.norm), np.transpose(p.embedding));
    const total = nn.logsumexp(logits.ref, -1);
    return np.mean(total.sub(np.sum(logits.mul(nn.oneHot(targets, vocabulary)), -1)));
  };
  const update = jit((p, m, v, ids, targets) => {
    const [value, gradient] = valueAndGrad(loss)(tree.ref(p), ids, targets);
    const [gradients, structure] = tree.flatten(gradient);
    const [ps, ms, vs] = [p, m, v].map((t) => tree.leaves(t));
    const next = gradients.map((g, i) => {
      const mi = ms[i].mul(0.9).add(g.ref.mul(0.1));
      const vi = vs[i].mul(0.95).add(np.square(g).mul(0.05));
      const step = mi.ref.mul(10).div(np.sqrt(vi.ref.mul(20)).add(1e-10)).add(ps[i].ref.mul(0.1));
      return [ps[i].sub(step.mul(1e-3)), mi, vi];
    });
    return [value, ...[0, 1, 2].map((j) => tree.unflatten(structure, next.map((n) => n[j])))];
  });
  const random = () => {
    const ids = Int32Array.from({ length: tokens }, () => Math.floor(Math.random() * vocabulary));
    return np.array(ids, { dtype: np.int32 });
  };
  return async () => {
    const result = update(weights, first, second, random(), random());
    [weights, first, second] = result.slice(1);
    const value = await result[0].jsAsync();
    await jax.blockUntilReady(tree.ref(weights));
    return value;
  };
}

let step = null;
addEventListener("message", async ({ data }) => {
  if (data.op === "start") step = await build(data.shape);
  const began = performance.now();
  const loss = data.op === "step" ? await step() : null;
  postMessage({ ms: performance.now() - began, loss });
});
