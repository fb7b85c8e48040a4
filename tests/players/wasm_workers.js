/**
 * The Workers of the CPU player from JavaScript, as daisychain.platform.wasm_worker has them.
 *
 * @typedef {{plain: WebAssembly.Module, shared: WebAssembly.Module}} Modules
 */

/** @returns {Promise<Modules>} from files beside this one */
export async function loadModules() {
  const [plain, shared] = await Promise.all(
    ["kernels.wasm", "kernels_shared.wasm"].map(async (name) =>
      WebAssembly.compile(await (await fetch(name)).arrayBuffer()),
    ),
  );
  return { plain, shared };
}

/** One Worker: `ask` has an answer {contents} or {failure}, `tell` has none. */
function open() {
  const worker = new Worker("wasm_player_worker.js", { type: "module" });
  const waiting = new Map();
  worker.onmessage = ({ data }) => waiting.get(data.id)(data);
  let id = 0;
  return {
    ask: (request) =>
      new Promise((resolve) => {
        waiting.set(++id, resolve);
        worker.postMessage({ ...request, id });
      }),
    tell: (request) => worker.postMessage(request),
    close: () => worker.terminate(),
  };
}

/**
 * A leader and its helpers under one face.  A `load` goes to all of them.
 * @param {Modules} modules @param {number} parts
 */
export async function openWorkers(modules, parts) {
  const workers = Array.from({ length: parts }, open);
  const start = (worker) => worker.ask({ op: "start", ...modules, lock: crypto.randomUUID() });
  await Promise.all(workers.map(start));
  const [leader, ...helpers] = workers;
  return {
    tell: leader.tell,
    ask: async (request) => {
      const answer = await leader.ask(request);
      if (request.op !== "load" || answer.failure) return answer;
      const [memory] = answer.contents;
      const { layout } = request;
      const joined = helpers.map((helper, i) =>
        helper.ask({ op: "help", layout, memory, part: i + 1 }),
      );
      return (await Promise.all(joined)).find(({ failure }) => failure) ?? answer;
    },
    close: () => {
      for (const worker of workers) worker.close();
    },
  };
}

/** A layout from JSON, its plans as the Workers take them. @param {any} layout */
export function layoutOf(layout) {
  const plans = Object.entries(layout.plans);
  const words = plans.map(([name, list]) => [name, Uint32Array.from(list)]);
  return { ...layout, plans: Object.fromEntries(words) };
}
