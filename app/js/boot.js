/**
 * The first script of the page: shows the start-up's progress and puts every failure into words.
 *
 * It also owns `window.daisychain`, so that `state()` and `log()` answer from the first moment and
 * after any failure.  Python pushes JSON into it (`_publish`, `_record`) and reports through `_fail`.
 */

const QUIET_CHECK_MS = 20_000; // no file arrived for so long: ask the server for each missing one
const QUIET_LIMIT_MS = 120_000; // no file arrived for so long: say that the start failed
const QUESTION = "?there"; // tells our own questions from the downloads in the list of resources
const ANSWER_LIMIT_MS = 15_000; // a server that takes longer to answer one question is not there

/** @typedef {{path: string, bytes: number, sha256: string}} BootFile */

/** State before Python says anything; the keys are those of the running session. */
let state = {
  phase: "boot",
  step: 0,
  loss: null,
  heldout_nats: null,
  heldout_bits_per_byte: null,
  tokens: 0,
  tokens_per_s: null,
  weights_hash: null,
  player: null,
  kernels: [],
  memory_bytes: null,
  members: [],
  error: null,
};
/** @type {string[]} */
const records = [];
/** @type {BootFile[]} every file that the start needs, once boot.json is here */
let files = [];
/** @type {Promise<void>} */
let listed = Promise.resolve();
const arrived = new Set();
const refused = new Set(); // answered with an error status
let running = false; // Python has published a state
let failed = false;
let lastProgress_ms = performance.now();

/** @param {string} id */
const element = (id) => document.getElementById(id);
const megabytes = (/** @type {number} */ bytes) => (bytes / 1e6).toFixed(1);

/** @param {string} text @param {number | null} fraction */
function say(text, fraction) {
  const line = element("boot-text");
  if (line && line.textContent !== text) line.textContent = text;
  const bar = /** @type {HTMLProgressElement | null} */ (element("boot-progress"));
  if (bar && fraction !== null) bar.value = fraction;
}

/**
 * Show a failure in the page and in state(); the first one stays, since the rest follow from it.
 * @param {string} sentence what happened and what to do
 * @param {string} [detail] the machine's own words
 */
function fail(sentence, detail = "") {
  if (failed) return;
  failed = true;
  state = { ...state, phase: "error", error: sentence };
  const box = element("boot");
  if (!box) return;
  box.hidden = false;
  box.setAttribute("role", "alert");
  element("boot-progress")?.remove();
  say(sentence, null);
  const reload = document.createElement("button");
  reload.textContent = "Reload the page";
  reload.onclick = () => location.reload();
  box.append(reload);
  if (!detail) return;
  const more = document.createElement("details");
  more.append(Object.assign(document.createElement("summary"), { textContent: "Details" }));
  more.append(Object.assign(document.createElement("pre"), { textContent: detail }));
  box.append(more);
}

/** @param {ArrayBuffer} bytes @returns {Promise<string>} */
async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Ask the server for one file past the cache.
 * @param {BootFile} file
 * @param {boolean} whole compare the content too (where the page is a secure context)
 * @returns {Promise<string>} what is wrong with it, or ""
 */
async function examine(file, whole) {
  try {
    const response = await fetch(whole ? file.path : file.path + QUESTION, {
      method: whole ? "GET" : "HEAD",
      cache: "reload",
      signal: AbortSignal.timeout(whole ? QUIET_LIMIT_MS : ANSWER_LIMIT_MS),
    });
    if (!response.ok) return `is missing on the server (HTTP ${response.status})`;
    if (!whole) return "";
    const bytes = await response.arrayBuffer();
    if (bytes.byteLength !== file.bytes)
      return `is damaged (${bytes.byteLength} bytes instead of ${file.bytes})`;
    if (crypto.subtle && (await sha256(bytes)) !== file.sha256)
      return "is damaged (its checksum is wrong)";
    return "";
  } catch (error) {
    return `could not be fetched (${error})`;
  }
}

/**
 * Something stopped the start: find the file that is to blame and say so.
 * @param {string} reason the machine's own words
 * @param {boolean} [whole] false after a silence: only ask whether the missing files are there
 * @returns {Promise<boolean>} whether a file was to blame
 */
async function blameFile(reason, whole = true) {
  for (const file of files) {
    if (failed || running) return true;
    if (!whole && arrived.has(file.path)) continue;
    const fault = await examine(file, whole);
    if (!fault) continue;
    fail(
      `The file ${file.path} ${fault}, so DaisyChain cannot start. Check the connection and reload the page; if that does not help, the site was copied incompletely.`,
      reason,
    );
    return true;
  }
  return false;
}

let examining = false;

/**
 * The start ended early: blame a file if one is missing or damaged, else say what is known.
 * @param {string} reason the machine's own words
 * @param {string} [sentence] what to say when all files are there
 */
async function stopped(
  reason,
  sentence = "Python could not be started, although all files are there. Reload the page; if that does not help, update the browser.",
) {
  if (failed || examining) return;
  examining = true;
  await listed;
  const blamed = await blameFile(reason);
  examining = false;
  if (!blamed && !running) fail(sentence, reason);
}

/**
 * An error that nobody caught.  Once Python runs, only one that has killed it concerns us.
 * @param {string} reason
 */
function uncaught(reason) {
  if (!running) stopped(reason);
  else if (/pyodide.*fatal|RuntimeError: (memory|unreachable)|out of memory/i.test(reason))
    fail(
      "Python stopped in this tab, most likely for want of memory. Reload the page and choose a smaller model.",
      reason,
    );
}

function progress() {
  if (running || failed) return;
  const lost = files.find(({ path }) => refused.has(path));
  if (lost) stopped(`the server refused ${lost.path}`);
  const runtime = files.filter(({ path }) => /^(pyodide|wheels)\//.test(path));
  const sum = (/** @type {BootFile[]} */ some) =>
    some.reduce((total, { bytes }) => total + bytes, 0);
  const total = sum(runtime);
  const done = sum(runtime.filter(({ path }) => arrived.has(path)));
  if (done < total)
    say(
      `Downloading the Python runtime: ${megabytes(done)} of ${megabytes(total)} MB.`,
      done / total,
    );
  else if (total) say("Starting Python.", 1);
}

async function watchSilence() {
  const quiet_ms = performance.now() - lastProgress_ms;
  if (running || failed) return;
  if (quiet_ms > QUIET_CHECK_MS && !examining) {
    examining = true;
    const reason = `nothing arrived for ${Math.round(quiet_ms / 1000)} s`;
    const blamed = await blameFile(reason, false);
    examining = false;
    if (blamed || running || failed) return;
    if (quiet_ms > QUIET_LIMIT_MS)
      return fail("The start takes too long. Reload the page, or try a faster connection.", reason);
    say("The connection or the device is slow; still starting.", null);
  }
  setTimeout(watchSilence, QUIET_CHECK_MS / 4);
}

window.daisychain = Object.freeze({
  /** @returns {object} the state as plain data; changing it changes nothing */
  state: () => structuredClone(state),
  /** @returns {object[]} one record a training step, oldest first */
  log: () => records.map((record) => JSON.parse(record)),
  /** Python's side: the whole state as JSON. @param {string} json */
  _publish(json) {
    state = JSON.parse(json);
    if (running && !failed) return;
    running = true;
    failed = false; // whoever publishes lives: a start given up for its silence, or a false alarm
    const box = element("boot");
    if (box) box.hidden = true;
  },
  /**
   * Python's side: record number ``index`` as JSON; later records, of an older run, go.
   * @param {number} index @param {string} json
   */
  _record(index, json) {
    records.length = index;
    records.push(json);
  },
  /** Python's side: a new run begins. */
  _clear() {
    records.length = 0;
  },
  /**
   * Python's side: the program stopped.
   * @param {string} sentence @param {string} detail
   */
  _fail(sentence, detail) {
    if (running) fail(sentence, detail);
    else stopped(detail, `DaisyChain could not be started: ${sentence}`);
  },
});

addEventListener(
  "error",
  (event) => {
    const source = /** @type {any} */ (event.target)?.src;
    if (source || event.message) uncaught(source ? `could not load ${source}` : event.message);
  },
  true, // files that fail to load tell only the capturing listeners
);
addEventListener("unhandledrejection", (event) =>
  uncaught(String(event.reason?.stack ?? event.reason)),
);

/** PyScript and Pyodide tell some failures of the start to the console alone: listen there. */
function listenToConsole() {
  for (const method of /** @type {const} */ (["error", "warn"])) {
    const print = console[method];
    console[method] = (...words) => {
      print.apply(console, words);
      const text = words.map(String).join(" ");
      if (!running && /Error|failed/i.test(text)) stopped(text);
    };
  }
}

async function listFiles() {
  try {
    files = (await (await fetch("boot.json")).json()).files;
  } catch (error) {
    fail(
      "The file boot.json could not be read, so DaisyChain cannot start. Reload the page; if that does not help, the site was copied incompletely.",
      String(error),
    );
  }
}

async function begin() {
  if (location.protocol === "file:")
    return fail(
      "A browser does not start DaisyChain from a file. Serve the folder instead: python3 -m http.server, then open the address it prints.",
    );
  if (typeof WebAssembly !== "object")
    return fail(
      "This browser has no WebAssembly, which Python needs. Use a current Chrome, Edge, Firefox or Safari, or switch WebAssembly on.",
    );
  setTimeout(watchSilence, QUIET_CHECK_MS);
  listenToConsole();
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const path = entry.name.slice(new URL(".", document.baseURI).href.length);
      if (path.endsWith(QUESTION)) continue;
      const status = /** @type {any} */ (entry).responseStatus; // unknown to some browsers
      (status >= 400 ? refused : arrived).add(path);
      lastProgress_ms = performance.now();
      progress();
    }
  }).observe({ type: "resource", buffered: true });
  listed = listFiles();
  await listed;
  progress();
}

begin();
