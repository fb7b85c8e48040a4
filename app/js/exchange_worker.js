/**
 * Holds the memory of one all-reduce and runs wasm/exchange.wasm on it, step by step as told.
 *
 * `daisychain.cluster.reducer` decides where everything lies and what is called.  A request is
 * {id, op, ...}; the answer {id, contents} or {id, failure: {name, message}}.
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

/** @param {any[]} operation @returns what the operation gives, or undefined */
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
  async execute({ operations }) {
    const results = [];
    for (const operation of operations) {
      const result = await carryOut(operation);
      if (result !== undefined) results.push(result);
    }
    return results;
  },
};

/** @param {MessageEvent} event */
async function onRequest({ data: { id, op, ...request } }) {
  try {
    const contents = await requests[op](request);
    const arrays = contents.filter((content) => content instanceof Uint8Array);
    const transfer = arrays.map((array) => array.buffer);
    postMessage({ id, contents }, { transfer });
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    postMessage({ id, failure: { name, message } });
  }
}

/** Requests in their order, one at a time. @type {Promise<void>} */
let queue = Promise.resolve();
self.onmessage = (event) => {
  queue = queue.then(() => onRequest(event));
};
