/**
 * Replays plans on the CPU, in a module Worker: a thin loop over the exports of kernels.wasm.
 *
 * Python lays a program out (`daisychain.players.wasm_layout`); this Worker holds its memory.  On a
 * cross-origin isolated page `daisychain.platform.wasm_worker` may start more Workers of this same
 * file, the helpers, on the leader's memory: each runs its share of every kernel call, with a
 * barrier after each call, and the shares are such that the bits do not depend on their number.
 * (The leader cannot start them: Workers of Workers now and then never start in Firefox.)
 * Requests are served in order.
 */

import { holdForEver } from "./worker/lock.js";

/**
 * @typedef {object} Layout See `wasm_layout.Layout`.
 * @property {number} parts
 * @property {number} pages
 * @property {number} control address of the barrier's words
 * @property {number[]} stackTops
 * @property {number[]} contexts
 * @property {number} imageAddress
 * @property {Uint8Array} image
 * @property {string[]} kernels
 * @property {Record<string, Uint32Array>} plans kernel, record, kernel, record, ...
 */
/** @typedef {(record: number, context: number) => void} Kernel */
/** @typedef {{plain: WebAssembly.Module, shared: WebAssembly.Module | null}} Modules */

// Words of the control block.
const ARRIVED = 0;
const GENERATION = 1;
const PLAN = 2; // what helpers do next: an index into the plans, or NONE
const FAILED = 3;
const NONE = -1;
const SPINS = 2000; // looks at the generation before a wait, about 10 us

/** The kernels on one memory, as one part of `layout.parts`. */
class Part {
  /**
   * @param {WebAssembly.Module} module
   * @param {WebAssembly.Memory} memory
   * @param {Layout} layout
   * @param {number} part
   */
  constructor(module, memory, layout, part) {
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    /** @type {WebAssembly.Global} */ (exports.__stack_pointer).value = layout.stackTops[part];
    this.parts = layout.parts;
    this.context = layout.contexts[part];
    this.kernels = layout.kernels.map((name) => /** @type {Kernel} */ (exports[name]));
    this.plans = layout.plans;
    this.names = Object.keys(layout.plans);
    this.control = new Int32Array(memory.buffer, layout.control, 4);
  }

  /** Wait until every part is here. */
  barrier() {
    const { control, parts } = this;
    if (parts === 1) return;
    const generation = Atomics.load(control, GENERATION);
    if (Atomics.add(control, ARRIVED, 1) === parts - 1) {
      Atomics.store(control, ARRIVED, 0);
      Atomics.add(control, GENERATION, 1);
      Atomics.notify(control, GENERATION);
      return;
    }
    for (let i = 0; i < SPINS; i++) if (Atomics.load(control, GENERATION) !== generation) return;
    while (Atomics.load(control, GENERATION) === generation)
      Atomics.wait(control, GENERATION, generation);
  }

  /**
   * This part's share of a plan.  A failure leaves the other parts waiting, so it still comes to
   * every barrier.
   * @param {string} name
   */
  run(name) {
    const words = this.plans[name];
    let failure = null;
    for (let i = 0; i < words.length; i += 2) {
      try {
        if (!failure) this.kernels[words[i]](words[i + 1], this.context);
      } catch (error) {
        failure = error;
        Atomics.store(this.control, FAILED, 1);
      }
      this.barrier();
    }
    if (failure) throw failure;
  }

  /** A helper's life on this memory: runs what the leader names until that is NONE. */
  help() {
    for (;;) {
      this.barrier();
      const plan = Atomics.load(this.control, PLAN);
      if (plan === NONE) return;
      try {
        this.run(this.names[plan]);
      } catch {
        // FAILED tells the leader.
      }
    }
  }

  /**
   * The leader's side: all parts run one plan.
   * @param {string} name
   */
  lead(name) {
    if (this.parts === 1) return this.run(name);
    Atomics.store(this.control, PLAN, this.names.indexOf(name));
    this.barrier();
    this.run(name);
    if (Atomics.load(this.control, FAILED)) throw new Error("a helping Worker failed");
  }

  /** Sends the helpers back to their message queues. */
  dismiss() {
    if (this.parts === 1) return;
    Atomics.store(this.control, PLAN, NONE);
    this.barrier();
  }
}

/** @type {Modules | null} */
let modules = null;
/** @type {{memory: WebAssembly.Memory, leader: Part} | null} */
let loaded = null;

/** @param {number} parts */
const moduleFor = (parts) => (parts > 1 ? modules.shared : modules.plain);

/** @param {Layout} layout */
function makeMemory({ pages, parts }) {
  return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: parts > 1 });
}

/** @param {WebAssembly.Memory} memory @param {number} address @param {ArrayBufferView} data */
function put(memory, address, data) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  new Uint8Array(memory.buffer, address, bytes.length).set(bytes);
}

/** @param {WebAssembly.Memory} memory @param {number[]} region @returns {Uint8Array} a copy */
function get(memory, [address, size]) {
  const copy = new Uint8Array(size);
  copy.set(new Uint8Array(memory.buffer, address, size));
  return copy;
}

const operations = {
  /**
   * The answer says that this Worker lives, the lock from then on.
   * @param {Modules & {lock: string}} request
   */
  async start({ plain, shared, lock }) {
    modules = { plain, shared };
    await holdForEver(lock);
  },

  /** The leader's; a shared memory is the answer, for the helpers. @param {{layout: Layout}} request */
  load({ layout }) {
    loaded?.leader.dismiss();
    loaded = null; // the old memory may go before the new one is made
    failedWrite = null;
    const memory = makeMemory(layout);
    put(memory, layout.imageAddress, layout.image);
    loaded = { memory, leader: new Part(moduleFor(layout.parts), memory, layout, 0) };
    return layout.parts > 1 ? [memory] : [];
  },

  /** @param {{writes: [number, ArrayBufferView][]}} request addresses and data */
  write({ writes }) {
    for (const [address, data] of writes) put(loaded.memory, address, data);
  },

  /** @param {{plans: string[], region: number[]}} request */
  run({ plans, region }) {
    for (const plan of plans) loaded.leader.lead(plan);
    return [get(loaded.memory, region)];
  },

  /** @param {{regions: number[][]}} request */
  read({ regions }) {
    return regions.map((region) => get(loaded.memory, region));
  },

  /**
   * A helper's: once answered, it serves the leader until that loads anew.
   * @param {{layout: Layout, memory: WebAssembly.Memory, part: number}} request
   */
  help({ layout, memory, part }) {
    const helper = new Part(moduleFor(layout.parts), memory, layout, part);
    queue = queue.then(() => helper.help());
  },

  /** @param {{layout: Layout, writes: [number, Uint8Array][], regions: number[][]}} request */
  alone({ layout, writes, regions }) {
    const memory = makeMemory(layout);
    put(memory, layout.imageAddress, layout.image);
    for (const [address, data] of writes) put(memory, address, data);
    const part = new Part(modules.plain, memory, layout, 0);
    for (const plan of part.names) part.run(plan);
    return regions.map((region) => get(memory, region));
  },
};

/** @type {Promise<void>} */
let queue = Promise.resolve();
/** @type {unknown} */
let failedWrite = null; // a write has no answer: its error goes into the next one

/** @param {any} request */
async function serve(request) {
  try {
    if (failedWrite && request.op !== "load") throw failedWrite;
    const contents = (await operations[request.op](request)) ?? [];
    if (request.id === undefined) return;
    const copies = contents.filter((content) => content instanceof Uint8Array);
    postMessage({ id: request.id, contents }, { transfer: copies.map((copy) => copy.buffer) });
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    if (request.id === undefined) failedWrite = error;
    else postMessage({ id: request.id, failure: { name, message } });
  }
}

addEventListener("message", ({ data }) => {
  queue = queue.then(() => serve(data));
});
