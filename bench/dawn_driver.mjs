// Drives app/js/webgpu_player.js on a native GPU through Dawn in Node, for benchmarks: one JSON
// request a line on stdin, one JSON answer a line on stdout (the protocol of
// tests/players/browser_driver.mjs).  WEBGPU_MODULE may name another copy of the npm package
// `webgpu`.  usage: node dawn_driver.mjs

import { createInterface } from "node:readline";
import { WebGPUPlayer } from "../app/js/webgpu_player.js";

const dawn = await import(process.env.WEBGPU_MODULE ?? "webgpu");
Object.assign(globalThis, dawn.globals);
const gpu = dawn.create([]);
let player = null;

const pack = (value) =>
  value instanceof Uint8Array
    ? { base64: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64") }
    : value;
const unpack = (value) =>
  value?.base64 === undefined ? value : new Uint8Array(Buffer.from(value.base64, "base64"));

async function answer({ method, args }) {
  try {
    if (method === "open") {
      player?.destroy();
      player = await WebGPUPlayer.open(gpu);
      const { info, limits, languageFeatures } = player;
      return { value: { info, limits, languageFeatures } };
    }
    if (method === "counters") return { value: player.counters };
    return { value: pack(await player[method](...args.map(unpack))) ?? null };
  } catch (error) {
    return { error: [error.name, error.message] };
  }
}

process.stdout.write('{"value": "ready"}\n');
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
process.exit(0);
