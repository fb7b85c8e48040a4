// The benchmark's model in TensorFlow.js on its WebAssembly backend, float32.
// The embedding goes through one-hot products: this backend has no gradient of gather.
// Messages: {op: "start", shape, threads} and {op: "step"}; answers {ms, loss}.
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { setThreadsCount, setWasmPaths } from "@tensorflow/tfjs-backend-wasm";

/** @param {{width: number, layers: number, heads: number, hidden: number, context: number, rows: number, vocabulary: number}} shape */
async function build({ width, layers, heads, hidden, context, rows, vocabulary }, threads) {
  setWasmPaths("./");
  setThreadsCount(threads);
  await tf.setBackend("wasm");
  await tf.ready();
  const size = width / heads;
  const tokens = rows * context;
  const half = size / 2;
  const uniform = (shape, scale) =>
    tf.variable(tf.randomUniform(shape, -scale / 2, scale / 2, "float32"));
  const ones = () => tf.variable(tf.ones([width]));
  const embedding = uniform([vocabulary, width], 0.07);
  const norm = ones();
  const blocks = Array.from({ length: layers }, () => ({
    norm1: ones(),
    q: uniform([width, width], 0.4),
    k: uniform([width, width], 0.4),
    v: uniform([width, width], 0.4),
    o: uniform([width, width], 0.2),
    norm2: ones(),
    gate: uniform([width, hidden], 0.4),
    up: uniform([width, hidden], 0.4),
    down: uniform([hidden, width], 0.2),
  }));
  const weights = [embedding, norm, ...blocks.flatMap((block) => Object.values(block))];
  const first = weights.map((w) => tf.variable(tf.zerosLike(w)));
  const second = weights.map((w) => tf.variable(tf.zerosLike(w)));
  const table = (f) => {
    const angle = (i) => Math.floor(i / half) * 10000 ** (-(i % half) / half);
    const values = Float32Array.from({ length: context * half }, (_, i) => f(angle(i)));
    return tf.tensor(values, [1, 1, context, half]);
  };
  const cos = table(Math.cos);
  const sin = table(Math.sin);
  const future = (i) => (i % context > Math.floor(i / context) ? -1e9 : 0);
  const mask = tf.tensor(
    Float32Array.from({ length: context * context }, (_, i) => future(i)),
    [1, 1, context, context],
  );

  const normed = (x, weight) => x.mul(x.square().mean(-1, true).add(1e-6).rsqrt()).mul(weight);
  const split = (x) => x.reshape([rows, context, heads, size]).transpose([0, 2, 1, 3]);
  const turn = (x) => {
    const [a, b] = tf.split(x, 2, -1);
    return tf.concat([a.mul(cos).sub(b.mul(sin)), a.mul(sin).add(b.mul(cos))], -1);
  };
  const loss = (ids, targets) => {
    let x = tf.matMul(tf.oneHot(ids, vocabulary).toFloat(), embedding);
    for (const l of blocks) {
      let h = normed(x, l.norm1);
      const [q, k, v] = [turn(split(h.matMul(l.q))), turn(split(h.matMul(l.k))), split(h.matMul(l.v))];
      const scores = q.matMul(k, false, true).mul(size ** -0.5);
      const mixed = scores.add(mask).softmax(-1).matMul(v);
      x = x.add(mixed.transpose([0, 2, 1, 3]).reshape([tokens, width]).matMul(l.o));
      h = normed(x, l.norm2);
      const gate = h.matMul(l.gate);
      x = x.add(gate.mul(gate.sigmoid()).mul(h.matMul(l.up)).matMul(l.down));
    }
    const logits = normed(x, norm).matMul(embedding, false, true);
    const picked = logits.mul(tf.oneHot(targets, vocabulary)).sum(-1);
    return logits.logSumExp(-1).sub(picked).mean();
  };
  const update = (weight, i, gradient) => {
    first[i].assign(first[i].mul(0.9).add(gradient.mul(0.1)));
    second[i].assign(second[i].mul(0.95).add(gradient.square().mul(0.05)));
    const step = first[i].mul(10).div(second[i].mul(20).sqrt().add(1e-10));
    weight.assign(weight.sub(step.add(weight.mul(0.1)).mul(1e-3)));
  };
  const random = () => tf.randomUniform([tokens], 0, vocabulary, "int32");
  return async () => {
    const [ids, targets] = [random(), random()];
    const { value, grads } = tf.variableGrads(() => loss(ids, targets), weights);
    tf.tidy(() => weights.forEach((weight, i) => update(weight, i, grads[weight.name])));
    const [result] = await value.data();
    tf.dispose([grads, value, ids, targets]);
    return result;
  };
}

let step = null;
addEventListener("message", async ({ data }) => {
  if (data.op === "start") step = await build(data.shape, data.threads);
  const began = performance.now();
  const loss = data.op === "step" ? await step() : null;
  postMessage({ ms: performance.now() - began, loss });
});
