/** A program on a device: its buffers by name, its calls as bind groups, its plans as dispatches. */

// The flags of the WebGPU specification; Node has no GPUBufferUsage and the like in its globals.
export const MAP_READ = 0x01;
export const COPY_SRC = 0x04;
export const COPY_DST = 0x08;
const UNIFORM = 0x40;
const STORAGE = 0x80;

const SLOT_BYTES = 256; // the largest minUniformBufferOffsetAlignment that a device may ask for

/** @typedef {{pipeline: GPUComputePipeline, layout: GPUBindGroupLayout}} Kernel */
/** @typedef {{buffer: GPUBuffer, bytes: number}} Slice */
/** @typedef {{pipeline: GPUComputePipeline, group: GPUBindGroup, x: number, y: number, z: number}} Dispatch */

/** An error that Python tells apart by its name. */
export class PlayerError extends Error {
  /**
   * @param {"AdapterRefused" | "DeviceLost" | "OutOfMemory" | "Invalid"} name
   * @param {string} message
   */
  constructor(name, message) {
    super(message);
    this.name = name;
  }
}

/** Makes and frees buffers, and counts them. */
export class Memory {
  /**
   * @param {GPUDevice} device
   * @param {{buffers: number, bufferBytes: number}} counters
   */
  constructor(device, counters) {
    this.device = device;
    this.counters = counters;
  }

  /**
   * Sizes are whole vec4<u32>, so that a kernel may see any operand as an array of them.
   * @param {number} bytes
   * @param {number} usage
   */
  create(bytes, usage) {
    const size = 16 * Math.ceil(bytes / 16);
    const buffer = this.device.createBuffer({ size, usage });
    this.counters.buffers += 1;
    this.counters.bufferBytes += size;
    return buffer;
  }

  /** @param {GPUBuffer | null} buffer */
  release(buffer) {
    if (!buffer) return;
    this.counters.buffers -= 1;
    this.counters.bufferBytes -= buffer.size;
    buffer.destroy();
  }
}

/**
 * Records dispatches in order; the device puts each one's writes before the next one's reads.
 * @param {GPUDevice} device
 * @param {Dispatch[]} dispatches
 */
export function encode(device, dispatches) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (const { pipeline, group, x, y, z } of dispatches) {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(x, y, z);
  }
  pass.end();
  return encoder;
}

export class LoadedProgram {
  /** @type {GPUBuffer[]} */
  #owned = [];
  /** @type {Map<string, Slice>} */
  #buffers = new Map();
  /** @type {Map<string, Dispatch[]>} */
  #plans = new Map();
  /** @type {Slice | null} */
  #scalars = null;

  /** @param {Memory} memory */
  constructor(memory) {
    this.memory = memory;
  }

  /**
   * Allocates and records a program (see `WebGPUPlayer.load`).
   * @param {any} program
   * @param {Map<string, Kernel>} kernels
   */
  record(program, kernels) {
    const storage = STORAGE | COPY_SRC | COPY_DST;
    this.#scalars = { buffer: this.#own(program.scalarBytes, storage), bytes: program.scalarBytes };
    /** @type {GPUBuffer[]} */
    const storages = program.storages.map((/** @type {number} */ bytes) =>
      this.#own(bytes, storage),
    );
    for (const [name, index, bytes] of program.buffers) {
      this.#buffers.set(name, { buffer: storages[index], bytes });
    }
    const params = this.#uploadParams(program.params);
    const scalars = this.#scalars.buffer;
    const { device } = this.memory;
    const calls = program.calls.map((/** @type {number[]} */ call) => {
      const [index, slot, x, y, z, ...operands] = call;
      const kernel = kernels.get(program.kernels[index]);
      if (!kernel) throw new Error(`kernel ${program.kernels[index]} is not compiled`);
      const size = 16 * Math.ceil(program.params[slot].length / 4);
      const resources = [
        { buffer: scalars },
        { buffer: params, offset: slot * SLOT_BYTES, size },
        ...operands.map((operand) => ({ buffer: storages[program.buffers[operand][1]] })),
      ];
      const entries = resources.map((resource, binding) => ({ binding, resource }));
      const group = device.createBindGroup({ layout: kernel.layout, entries });
      return { pipeline: kernel.pipeline, group, x, y, z };
    });
    for (const [name, indices] of Object.entries(program.plans)) {
      const dispatches = /** @type {number[]} */ (indices).map((index) => calls[index]);
      this.#plans.set(name, dispatches);
      encode(device, dispatches).finish(); // never submitted: the device checks every call
    }
  }

  /** @param {string} name */
  plan(name) {
    return found(this.#plans.get(name), `there is no plan ${name}`);
  }

  /** @param {string} name */
  slice(name) {
    return found(this.#buffers.get(name), `there is no buffer ${name}`);
  }

  scalars() {
    return found(this.#scalars, "no program is loaded");
  }

  free() {
    for (const buffer of this.#owned) this.memory.release(buffer);
    this.#owned = [];
  }

  /** @param {number[][]} params the parameter words of each slot */
  #uploadParams(params) {
    const buffer = this.#own(SLOT_BYTES * Math.max(1, params.length), UNIFORM | COPY_DST);
    const values = new Uint32Array(buffer.size / 4);
    params.forEach((words, slot) => {
      values.set(words, (slot * SLOT_BYTES) / 4);
    });
    this.memory.device.queue.writeBuffer(buffer, 0, values);
    return buffer;
  }

  /** @param {number} bytes @param {number} usage */
  #own(bytes, usage) {
    const buffer = this.memory.create(bytes, usage);
    this.#owned.push(buffer);
    return buffer;
  }
}

/**
 * @template T
 * @param {T | null | undefined} value
 * @param {string} message
 * @returns {T}
 */
function found(value, message) {
  if (value === null || value === undefined) throw new PlayerError("Invalid", message);
  return value;
}
