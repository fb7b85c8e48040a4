// Times every kernel call of a training step: the loop of app/js/wasm_player_worker.js with a clock.
// Message {op: "start", module, layout, writes, step, microBatch}; each {op: "step"} answers {ms, calls},
// calls being the milliseconds of each call of the plans of `step`, in order.
let loaded = null;

function load({ module, layout, writes, step, microBatch }) {
  const memory = new WebAssembly.Memory({ initial: layout.pages, maximum: layout.pages });
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.__stack_pointer.value = layout.stackTops[0];
  const bytes = new Uint8Array(memory.buffer);
  bytes.set(layout.image, layout.imageAddress);
  for (const [address, data] of writes) bytes.set(data, address);
  const run = (plan, note) => {
    const words = layout.plans[plan];
    for (let i = 0; i < words.length; i += 2) {
      const began = performance.now();
      exports[layout.kernels[words[i]]](words[i + 1], layout.contexts[0]);
      note(performance.now() - began);
    }
  };
  run("init", () => {});
  const position = new Uint32Array(memory.buffer, microBatch, 1);
  return () => {
    const calls = [];
    position[0] = 0;
    for (const plan of step) run(plan, (ms) => calls.push(ms));
    return calls;
  };
}

addEventListener("message", ({ data }) => {
  if (data.op === "start") loaded = load(data);
  const began = performance.now();
  const calls = data.op === "step" ? loaded() : [];
  postMessage({ ms: performance.now() - began, calls });
});
