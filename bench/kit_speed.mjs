// How fast an inference kit's model writes: ms a token, for bench/generation_speed.py.
// usage: node kit_speed.mjs KIT.html TOKENS
import { readFileSync } from "node:fs";
import { inflateSync } from "node:zlib";
import { Model } from "../app/js/kit/model.js";

const [path, tokens] = process.argv.slice(2);
const blocks = new Map();
for (const [, id, text] of readFileSync(path, "utf8").matchAll(/<script type="[^"]+" id="(\w+)">([^<]*)/g)) {
  blocks.set(id, text);
}
const start = performance.now();
const bytes = (id) => new Uint8Array(Buffer.from(blocks.get(id), "base64"));
const kit = JSON.parse(blocks.get("kit"));
const runtime = new Uint8Array(inflateSync(bytes("runtime")));
const parts = {};
let at = 0;
for (const [name, size] of kit.runtime) {
  parts[name] = runtime.subarray(at, at + size);
  at += size;
}
const module = await WebAssembly.compile(parts.module);
const model = new Model(module, kit.layout, kit.context, kit.vocabulary);
for (const [name, address] of kit.contents) model.put(address, parts[name], 2);
for (const [id, address, planes] of kit.weights) model.put(address, bytes(id), planes);
for (const [index, word] of kit.exponents) model.scalars[index] = word;
const open = performance.now() - start;

const times = [];
await model.feed([]);
for (let i = 0; i < tokens; i++) {
  const before = performance.now();
  await model.take(i);
  times.push(performance.now() - before);
}
process.stdout.write(JSON.stringify({ token: Math.min(...times), open }));
