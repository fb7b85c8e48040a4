// What the kit's model on a GPU asks of its player for the tokens on stdin, as JSON.
import { readFileSync } from "node:fs";
import { agreedMs, GpuModel } from "../../app/js/kit/gpu_model.js";

const { prompt, next, vocabulary } = JSON.parse(readFileSync(0, "utf8"));
const calls = [];
const player = {
  write: (name, offset, words) => calls.push(["write", name, offset, ...words]),
  run: async (plans, read) => {
    calls.push(["run", read, ...plans]);
    return new Uint8Array(Int32Array.from({ length: 1 + vocabulary }, (_, i) => i - 5).buffer);
  },
};
const model = new GpuModel(player, { contextTokens: 64, mantissas: new Int32Array(vocabulary) });
await model.feed(prompt);
await model.take(next);
const [exponent] = model.exponent;
const answer = { calls: [...calls], exponent, mantissas: [...model.mantissas] };

// The same logits again and again: agreement, one wrong word in the last ones, and too slow a GPU.
const equal = Array.from({ length: 6 }, () => model.logits.slice());
const wrong = equal.map((logits) => logits.slice());
wrong[5][vocabulary] ^= 1;
const fates = { equal: [equal, 1e9], wrong: [wrong, 1e9], slow: [wrong, 0] };
for (const [name, [logits, limitMs]] of Object.entries(fates)) {
  calls.length = 0;
  const ms = await agreedMs(model, prompt, [1, 2, 3, 4, 5, 6], logits, limitMs);
  const taken = calls.flatMap(([kind, , at, token]) => (kind === "write" && at ? [token] : []));
  answer[name] = [Number.isNaN(ms), ms < limitMs, taken];
}
process.stdout.write(JSON.stringify(answer));
