// A counting stand-in for navigator.gpu: computes nothing, but keeps the rules that the player must
// keep (sizes, map states, live buffers) and counts every call that costs time or memory.

class FakeBuffer {
  mapped = false;
  constructor(device, { size, usage }) {
    if (size % 16 !== 0) throw new Error(`odd size ${size}`);
    Object.assign(this, { device, size, usage, alive: true });
    device.counts.created += 1;
    device.counts.live += 1;
  }
  destroy() {
    if (this.alive) this.device.counts.live -= 1;
    this.alive = false;
  }
  async mapAsync(_mode, offset, size) {
    this.device.counts.maps += 1;
    if (this.mapped || !this.alive) throw new Error("not mappable");
    if (offset + size > this.size) throw new Error("out of range");
    await this.device.mapping(this);
    this.mapped = true;
  }
  getMappedRange(_offset, size) {
    if (!this.mapped) throw new Error("not mapped");
    return new ArrayBuffer(size);
  }
  unmap() {
    this.mapped = false;
  }
}

class FakePipeline {}

class FakeDevice {
  counts = { created: 0, live: 0, maps: 0, submits: 0, dispatches: 0, writes: 0 };
  limits = {};
  scopes = [];
  /** Resolves when a map may; replaced by tests. */
  mapping = async () => {};
  listeners = [];
  constructor(options) {
    this.options = options;
    this.lost = new Promise((resolve) => {
      this.lose = (reason) => resolve({ reason, message: "the test took it" });
    });
    this.queue = {
      submit: () => {
        this.counts.submits += 1;
      },
      writeBuffer: () => {
        this.counts.writes += 1;
      },
    };
  }
  addEventListener(_type, listener) {
    this.listeners.push(listener);
  }
  destroy() {
    this.lose("destroyed");
  }
  pushErrorScope(filter) {
    this.scopes.push(filter);
  }
  async popErrorScope() {
    const filter = this.scopes.pop();
    return filter === this.options.failingScope ? { message: "the fake says no" } : null;
  }
  createBuffer(descriptor) {
    return new FakeBuffer(this, descriptor);
  }
  createShaderModule({ code }) {
    const messages = [
      { type: "warning", lineNum: 1, message: "harmless" },
      { type: "error", lineNum: 7, message: "unknown identifier 'dot4I8Packed'" },
    ];
    return { code, getCompilationInfo: async () => ({ messages }) };
  }
  createBindGroupLayout(descriptor) {
    return descriptor;
  }
  createPipelineLayout(descriptor) {
    return descriptor;
  }
  createBindGroup(descriptor) {
    return descriptor;
  }
  async createComputePipelineAsync({ compute }) {
    if (compute.module.code.includes("dot4I8Packed")) throw new Error("invalid module");
    return new FakePipeline();
  }
  createCommandEncoder() {
    return {
      beginComputePass: () => ({
        setPipeline(pipeline) {
          if (!(pipeline instanceof FakePipeline)) throw new TypeError("no pipeline");
        },
        setBindGroup() {},
        dispatchWorkgroups: () => {
          this.counts.dispatches += 1;
        },
        end() {},
      }),
      copyBufferToBuffer() {},
      finish() {},
    };
  }
}

/**
 * @param {{noAdapter?: boolean, noDevice?: boolean, failingScope?: string, bare?: boolean}} options
 *   bare: an adapter without info, features and limits, a gpu without wgslLanguageFeatures
 */
export function fakeGPU(options = {}) {
  const gpu = {
    adapters: 0,
    device: null,
    async requestAdapter() {
      gpu.adapters += 1;
      if (options.noAdapter || (options.lateAdapter && gpu.adapters === 1)) return null;
      let used = false;
      const full = { info: { vendor: "fake" }, features: new Set(), limits: { maxBufferSize: 99 } };
      return {
        ...(options.bare ? {} : full),
        async requestDevice({ requiredLimits }) {
          if (options.noDevice) throw new Error("no device for you");
          if (used) throw new Error("adapter is consumed");
          used = true;
          gpu.device = new FakeDevice(options);
          gpu.device.limits = requiredLimits;
          return gpu.device;
        },
      };
    },
  };
  if (!options.bare) gpu.wgslLanguageFeatures = new Set(["packed_4x8_integer_dot_product"]);
  return gpu;
}
