/**
 * Replays plans on a WebGPU device: a thin loop, everything that can be decided is decided in Python.
 *
 * A program arrives once as JSON text (`daisychain.players.webgpu.flatten` describes it).  Its
 * buffers, bind groups and parameter slices are made at load; `run` then records one command buffer,
 * submits it once and maps one staging buffer once.  Works in a page, a Worker and Node (Dawn).
 *
 * Bindings of every kernel: 0 scalars (storage), 1 its parameters (uniform), 2.. its operands.
 */

import {
  COPY_DST,
  encode,
  LoadedProgram,
  MAP_READ,
  Memory,
  PlayerError,
} from "./webgpu/program.js";

/** @import {Dispatch, Kernel, Slice} from "./webgpu/program.js" */

const COMPUTE = 0x4; // GPUShaderStage and GPUMapMode, which Node does not have in its globals
const READ = 0x1;

const ADAPTER_WAIT_MS = 250;
const CHUNK_BYTES = 1 << 22; // of a download outside the training loop
const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupsPerDimension",
];

/** @param {unknown} error */
const words = (error) => (error instanceof Error ? error.message : String(error));

/** @typedef {{key: string, code: string, access: ("storage" | "read-only-storage")[]}} Source */
/** @typedef {{buffer: GPUBuffer, bytes: number, offset: number}} Copy */

/** A browser that has just started may have no adapter at first (docs/EXPERIMENTS.md). @param {GPU} gpu */
async function findAdapter(gpu) {
  const wanted = /** @type {const} */ ({ powerPreference: "high-performance" });
  const adapter = await gpu.requestAdapter(wanted);
  if (adapter) return adapter;
  await new Promise((resolve) => setTimeout(resolve, ADAPTER_WAIT_MS));
  return gpu.requestAdapter(wanted);
}

export class WebGPUPlayer {
  /** @type {GPUDevice} */
  #device;
  /** By key. @type {Map<string, Kernel>} */
  #kernels = new Map();
  /** By code: kernels that do not use the units are the same in every variant. @type {Map<string, Kernel>} */
  #compiled = new Map();
  /** @type {Memory} */
  #memory;
  /** @type {LoadedProgram} */
  #program;
  /** @type {{buffer: GPUBuffer | null, busy: boolean}[]} */
  #staging = [
    { buffer: null, busy: false },
    { buffer: null, busy: false },
  ];
  /** Rejections of the maps in flight. @type {Set<(error: Error) => void>} */
  #waiting = new Set();
  /** @type {string[]} */
  #errors = [];

  /** Why the device is lost, or null. @type {string | null} */
  lossReason = null;
  counters = { submits: 0, readBacks: 0, dispatches: 0, buffers: 0, bufferBytes: 0 };

  /**
   * @param {GPUDevice} device
   * @param {GPUAdapter} adapter
   * @param {string[]} languageFeatures
   */
  constructor(device, adapter, languageFeatures) {
    this.#device = device;
    this.#memory = new Memory(device, this.counters);
    this.#program = new LoadedProgram(this.#memory);
    /** @type {string[]} */
    this.languageFeatures = languageFeatures;
    const { vendor, architecture, device: model, description } = adapter.info ?? {};
    const isFallback = adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter;
    /** What the browser says about the adapter; empty where it says nothing. */
    this.info = [vendor, architecture, model, description, isFallback ? "fallback" : ""]
      .filter(Boolean)
      .join(" ");
    /** @type {Record<string, number>} */
    this.limits = {};
    for (const name of LIMITS) this.limits[name] = device.limits[name];
    /** Resolves with the reason when the device is lost. @type {Promise<string>} */
    this.lost = device.lost.then(({ reason, message }) => {
      const text = this.#lose(`${reason ?? "unknown"}: ${message}`);
      for (const reject of this.#waiting) reject(new PlayerError("DeviceLost", text));
      return text;
    });
    device.addEventListener?.("uncapturederror", (event) => {
      event.preventDefault?.();
      if (this.#errors.length < 16) this.#errors.push(event.error.message);
    });
  }

  /**
   * Opens a device with everything that its adapter allows.  An adapter serves one device, so each
   * call asks for a new one.
   * @param {GPU} gpu `navigator.gpu`, or Dawn's in Node
   */
  static async open(gpu) {
    let adapter = null;
    let device = null;
    try {
      adapter = await findAdapter(gpu);
      if (adapter === null) throw new Error("the browser offers no adapter");
      /** @type {Record<string, number>} */
      const requiredLimits = {};
      for (const name of LIMITS) {
        const value = adapter.limits?.[name];
        if (value !== undefined) requiredLimits[name] = value;
      }
      device = await adapter.requestDevice({ requiredLimits });
    } catch (error) {
      throw new PlayerError("AdapterRefused", words(error));
    }
    return new WebGPUPlayer(device, adapter, [...(gpu.wgslLanguageFeatures ?? [])]);
  }

  /**
   * Compiles kernels, all at once; those compiled before with the same text are kept.
   * @param {string} text JSON of {@link Source}[]
   * @returns {Promise<string>} JSON of [key, first message][] for the kernels that do not compile
   */
  async compile(text) {
    this.#alive();
    /** @type {Source[]} */
    const sources = JSON.parse(text);
    const answers = await Promise.all(sources.map((source) => this.#compile(source)));
    const failures = answers.filter((answer) => answer !== null);
    this.#alive();
    return JSON.stringify(failures);
  }

  /** @param {Source} source @returns {Promise<[string, string] | null>} */
  async #compile({ key, code, access }) {
    const known = this.#compiled.get(code);
    if (known) {
      this.#kernels.set(key, known);
      return null;
    }
    const device = this.#device;
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code, label: key });
    /** @type {GPUBufferBindingType[]} */
    const types = ["storage", "uniform", ...access];
    const layout = device.createBindGroupLayout({
      entries: types.map((type, binding) => ({ binding, visibility: COMPUTE, buffer: { type } })),
    });
    const compute = { module, entryPoint: "main" };
    const pipeline = device.createComputePipelineAsync({
      label: key,
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute,
    });
    const scope = device.popErrorScope();
    try {
      const kernel = { layout, pipeline: await pipeline };
      this.#compiled.set(code, kernel);
      this.#kernels.set(key, kernel);
      return null;
    } catch (error) {
      const messages = (await module.getCompilationInfo?.())?.messages ?? [];
      const first = messages.find((message) => message.type === "error");
      const text = (first?.message ?? words(error)).trim().split("\n")[0];
      return [key, first ? `line ${first.lineNum}: ${text}` : text];
    } finally {
      await scope.catch(() => null); // the pipeline's rejection says the same
    }
  }

  /**
   * Loads a program in place of the one before: buffers (zeroed), bind groups, recorded plans.
   * @param {string} text JSON: {scalarBytes, storages: bytes[], buffers: [name, storage, bytes][],
   *   kernels: key[], params: word[][], calls: [kernel, params, x, y, z, ...buffer][],
   *   plans: {name: call[]}}
   */
  async load(text) {
    this.#alive();
    this.#unload();
    const device = this.#device;
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    let problem = null;
    try {
      this.#program.record(JSON.parse(text), this.#kernels);
    } catch (error) {
      problem = new PlayerError("Invalid", words(error));
    }
    const [invalid, memory] = await Promise.all([device.popErrorScope(), device.popErrorScope()]);
    this.#alive();
    if (memory) problem = new PlayerError("OutOfMemory", memory.message);
    else if (invalid) problem = new PlayerError("Invalid", invalid.message);
    if (problem) {
      this.#unload();
      throw problem;
    }
  }

  /**
   * Queues an upload; later runs see it.
   * @param {string} name
   * @param {number} offset in bytes, a multiple of 4
   * @param {ArrayBufferView} data whose length in bytes is a multiple of 4
   */
  write(name, offset, data) {
    this.#upload(this.#program.slice(name), offset, data);
  }

  /**
   * Queues an upload into the scalars.
   * @param {number} firstWord
   * @param {ArrayBufferView} data
   */
  writeScalars(firstWord, data) {
    this.#upload(this.#program.scalars(), 4 * firstWord, data);
  }

  /** @param {Slice} slice @param {number} offset @param {ArrayBufferView} data */
  #upload({ buffer, bytes }, offset, { buffer: source, byteOffset, byteLength }) {
    if (offset + byteLength > bytes) {
      throw new PlayerError("Invalid", `${byteLength} bytes at ${offset} do not fit ${bytes}`);
    }
    this.#device.queue.writeBuffer(buffer, offset, source, byteOffset, byteLength);
  }

  /**
   * Runs plans in order as one command buffer and returns the contents of a buffer after them.
   * At most two runs may be in flight.
   * @param {string[]} plans
   * @param {string} read
   * @param {number} [first] of the plans' dispatches, counted through, the first to run
   * @param {number} [last] and the one before which to stop
   * @returns {Promise<Uint8Array>}
   */
  async run(plans, read, first = 0, last = Number.POSITIVE_INFINITY) {
    const dispatches = plans.flatMap((name) => this.#loaded.plan(name)).slice(first, last);
    return this.#replay(dispatches, [this.#loaded.slice(read)]);
  }

  /**
   * Runs plans like `run`; the contents of several buffers after them and, last, of the scalars.
   * @param {string[]} plans
   * @param {string[]} names
   * @returns {Promise<Uint8Array[]>} parts of one array
   */
  async runAndRead(plans, names) {
    const dispatches = plans.flatMap((name) => this.#loaded.plan(name));
    const slices = [...names.map((name) => this.#loaded.slice(name)), this.#loaded.scalars()];
    const contents = await this.#replay(dispatches, slices);
    let end = 0;
    return slices.map(({ bytes }) => {
      end += bytes;
      return contents.subarray(end - bytes, end);
    });
  }

  /**
   * One command buffer, one submit, one map.
   * @param {Dispatch[]} dispatches
   * @param {Slice[]} slices what to read after them
   * @returns {Promise<Uint8Array>} end to end
   */
  async #replay(dispatches, slices) {
    const size = slices.reduce((sum, { bytes }) => sum + bytes, 0);
    const slot = this.#staging.find((candidate) => !candidate.busy);
    if (!slot) throw new PlayerError("Invalid", "two runs are in flight already");
    if (!slot.buffer || slot.buffer.size < size) {
      this.#memory.release(slot.buffer);
      slot.buffer = this.#memory.create(size, MAP_READ | COPY_DST);
    }
    const encoder = encode(this.#device, dispatches);
    this.counters.dispatches += dispatches.length;
    slot.busy = true;
    try {
      const copies = slices.map((slice) => ({ ...slice, offset: 0 }));
      const result = await this.#download(encoder, copies, slot.buffer);
      if (this.#errors.length > 0)
        throw new PlayerError("Invalid", this.#errors.splice(0).join("; "));
      return result;
    } finally {
      slot.busy = false;
    }
  }

  /**
   * The contents of buffers one after the other, in chunks (not for the training loop).
   * @param {string[]} names
   */
  async read(names) {
    return this.#read(names.map((name) => this.#loaded.slice(name)));
  }

  /** The contents of the scalars. */
  async readScalars() {
    return this.#read([this.#loaded.scalars()]);
  }

  /** Frees the device and everything on it. */
  destroy() {
    this.#lose("destroyed: the page gave it back");
    this.#unload();
    for (const slot of this.#staging) {
      this.#memory.release(slot.buffer);
      slot.buffer = null;
    }
    this.#device.destroy();
  }

  /** The program of a device that is there: with a lost one its plans are gone, too. */
  get #loaded() {
    this.#alive();
    return this.#program;
  }

  /** @param {Slice[]} slices */
  async #read(slices) {
    const result = new Uint8Array(slices.reduce((sum, slice) => sum + slice.bytes, 0));
    const staging = this.#memory.create(Math.min(result.length, CHUNK_BYTES), MAP_READ | COPY_DST);
    try {
      let done = 0;
      /** @type {Copy[]} */
      let copies = [];
      let room = CHUNK_BYTES;
      const flush = async () => {
        const encoder = this.#device.createCommandEncoder();
        const chunk = await this.#download(encoder, copies, staging);
        result.set(chunk, done);
        done += chunk.length;
        copies = [];
        room = CHUNK_BYTES;
      };
      for (const { buffer, bytes } of slices) {
        for (let offset = 0; offset < bytes; ) {
          const size = Math.min(bytes - offset, room);
          copies.push({ buffer, offset, bytes: size });
          offset += size;
          room -= size;
          if (room === 0) await flush();
        }
      }
      if (copies.length > 0) await flush();
    } finally {
      this.#memory.release(staging);
    }
    return result;
  }

  /**
   * Ends a command buffer with copies into a staging buffer, submits it and maps the copies.
   * @param {GPUCommandEncoder} encoder
   * @param {Copy[]} copies
   * @param {GPUBuffer} staging
   */
  async #download(encoder, copies, staging) {
    let size = 0;
    for (const { buffer, offset, bytes } of copies) {
      encoder.copyBufferToBuffer(buffer, offset, staging, size, bytes);
      size += bytes;
    }
    this.#device.queue.submit([encoder.finish()]);
    this.counters.submits += 1;
    this.counters.readBacks += 1;
    await this.#mapped(staging, size);
    const copy = new Uint8Array(staging.getMappedRange(0, size).slice(0));
    staging.unmap();
    return copy;
  }

  /**
   * A lost device may leave a map hanging or reject it with an unrelated name.
   * @param {GPUBuffer} staging
   * @param {number} bytes
   */
  async #mapped(staging, bytes) {
    /** @type {(error: Error) => void} */
    let reject = () => {};
    try {
      await new Promise((resolve, fail) => {
        reject = fail;
        this.#waiting.add(reject);
        staging.mapAsync(READ, 0, bytes).then(resolve, fail);
      });
    } catch (error) {
      // Validation errors were ruled out at load, so a rejected map means a lost device.
      throw new PlayerError("DeviceLost", this.#lose(words(error)));
    } finally {
      this.#waiting.delete(reject);
    }
    this.#alive();
  }

  #unload() {
    this.#program.free();
    this.#program = new LoadedProgram(this.#memory);
  }

  /** The first reason stays. @param {string} reason */
  #lose(reason) {
    this.lossReason ??= reason;
    return this.lossReason;
  }

  #alive() {
    if (this.lossReason !== null) throw new PlayerError("DeviceLost", this.lossReason);
  }
}
