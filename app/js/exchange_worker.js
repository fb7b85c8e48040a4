/**
 * Holds the memory of one all-reduce and runs wasm/exchange.wasm on it, step by step as told.
 *
 * `daisychain.cluster.reducer` decides where everything lies and what is called.  A request is
 * {id, op, ...}; the answer {id, contents} or {id, failure: {name, message}}.  An answer with a hash
 * waits for that, but later requests do not.
 */

import { holdForEver } from "./worker/lock.js";

/** @type {WebAssembly.Memory} */
let memory;
/** @type {Record<string, (...numbers: number[]) => number | bigint>} */
let functions;

/** Parts of the memory, end to end. @param {number[]} parts address, size, address, size, ... */
function gather(parts) {
  let size = 0;
  for (let i = 1; i < parts.length; i += 2) size += parts[i];
  const out = new Uint8Array(size);
  for (let i = 0, at = 0; i < parts.length; at += parts[i + 1], i += 2)
    out.set(new Uint8Array(memory.buffer, parts[i], parts[i + 1]), at);
  return out;
}

/** @param {Uint8Array} bytes */
async function hash(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {any[]} operation @returns what the operation gives (of a hash a promise), or undefined */
function carryOut([kind, ...rest]) {
  switch (kind) {
    case "write": {
      const [address, data, offset, size] = rest;
      new Uint8Array(memory.buffer).set(data.subarray(offset, offset + size), address);
      return undefined;
    }
    case "fill":
      new Uint8Array(memory.buffer, rest[0], rest[1]).fill(0);
      return undefined;
    case "read":
      return gather(rest);
    case "hash":
      return hash(gather(rest));
    case "call":
      functions[rest[0]](...rest.slice(1));
      return undefined;
    case "ask":
      return String(functions[rest[0]](...rest.slice(1)));
    default:
      throw new Error(`no operation ${kind}`);
  }
}

const requests = {
  /** The first: the module. @param {{bytes: Uint8Array, lock: string}} request */
  async start({ bytes, lock }) {
    memory = new WebAssembly.Memory({ initial: 2, maximum: 65535 });
    const { instance } = await WebAssembly.instantiate(bytes, { env: { memory } });
    functions = /** @type {any} */ (instance.exports);
    await holdForEver(lock);
    return [];
  },

  /** @param {{size: number}} request bytes that the memory must have */
  grow({ size }) {
    const missing = size - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    return [];
  },

  /** @param {{operations: any[]}} request @returns what those give that give something */
  execute({ operations }) {
    return operations.map(carryOut).filter((result) => result !== undefined);
  },
};

/** @param {number} id @param {Promise<any[]>} finding */
async function answer(id, finding) {
  try {
    const contents = await Promise.all(await finding);
    const arrays = contents.filter((content) => content instanceof Uint8Array);
    postMessage({ id, contents }, { transfer: arrays.map((array) => array.buffer) });
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    postMessage({ id, failure: { name, message } });
  }
}

/** Requests in their order, one at a time. @type {Promise<unknown>} */
let queue = Promise.resolve();
self.onmessage = ({ data: { id, op, ...request } }) => {
  const finding = queue.then(() => requests[op](request));
  queue = finding.catch(() => {}); // the answer says it
  answer(id, finding);
};
