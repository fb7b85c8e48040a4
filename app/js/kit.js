/**
 * An inference kit: one HTML file with a model in it, opened from a disk, without any network.
 *
 * Everything lies inline (daisychain.export.kit): the facts as JSON, WebAssembly and tokenizer packed
 * in one block, each weight tensor in one of its own. All work is done here on the page's thread, a
 * token at a time: from file:// no Worker can be started in every browser.
 */
import { ByteLevelBpe } from "./data/bpe.js";
import { agreedMs, GpuModel } from "./kit/gpu_model.js";
import { generate, Model, rest } from "./kit/model.js";
import { choose } from "./kit/sampling.js";

const CHECK_TOKENS = 12;
const SLOW_MS = 5; // a token: what is faster on the processor gains nothing on any GPU (docs/EXPERIMENTS.md)

const element = (id) => document.getElementById(id);
const kit = JSON.parse(element("kit").textContent);

/** @param {string} text base64 @returns {Uint8Array} */
function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** The content of a block, which is then dropped. */
function take(id) {
  const block = element(id);
  const bytes = decodeBase64(block.textContent);
  block.remove();
  return bytes;
}

async function unpack(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const decoder = new TextDecoder();
let cpu; // the model on WebAssembly, which is always there
let gpu = null; // and on WebGPU, once it has proved that it computes the same
let model; // the one of the two that writes
let gpuParts;
const checked = []; // tokens that the processor wrote after the check's prompt
const checkedLogits = []; // and the logits before each of them
let tokenizer;
let tokenBytes;
let writing = false;
let trying = false; // the GPU is being tried
let marked = null;
let choices = [];

const bytesOf = (token) =>
  tokenBytes.bytes.subarray(token ? tokenBytes.ends[token - 1] : 0, tokenBytes.ends[token]);

async function open() {
  const parts = {};
  const runtime = await unpack(take("runtime"));
  let at = 0;
  for (const [name, size] of kit.runtime) {
    parts[name] = runtime.subarray(at, at + size);
    at += size;
  }
  const module = await WebAssembly.compile(parts.module);
  model = cpu = new Model(module, kit.layout, kit.context, kit.vocabulary);
  for (const [name, address] of kit.contents) cpu.put(address, parts[name], 2);
  for (const [id, address, planes] of kit.weights) {
    cpu.put(address, take(id), planes);
    await rest();
  }
  for (const [index, word] of kit.exponents) cpu.scalars[index] = word;
  gpuParts = JSON.parse(decoder.decode(parts.gpu));
  tokenizer = new ByteLevelBpe(lengthened(JSON.parse(decoder.decode(parts.tokenizer))));
  tokenBytes = tokenizer.tokenBytes();
}

/** The tokenizer as it was before daisychain.export.kit shortened it: a vocabulary in the order of
 * ids, whose last names are what the merges make; of a merge there is the length of its left part. */
function lengthened(spec) {
  const { vocab, merges } = spec.model;
  if (!Array.isArray(vocab)) return spec;
  const made = vocab.slice(vocab.length - merges.length);
  spec.model.vocab = Object.fromEntries(vocab.map((name, i) => [name, i]));
  spec.model.merges = merges.map((left, i) => [made[i].slice(0, left), made[i].slice(left)]);
  return spec;
}

/** Tokens that the trainer's device wrote must come here too. @returns {Promise<number>} ms a token */
async function check() {
  const greedy = { temperature: 0, topK: 0, topP: 1, seed: 1 };
  const pick = (number) => {
    checkedLogits.push(cpu.logits.slice());
    return choose(cpu.mantissas, cpu.exponent[0], greedy, number);
  };
  const { prompt, tokens } = kit.check;
  let leastMs = Number.POSITIVE_INFINITY;
  let start = Number.NEGATIVE_INFINITY;
  for await (const { token } of generate(cpu, prompt, CHECK_TOKENS, pick)) {
    leastMs = Math.min(leastMs, performance.now() - start);
    checked.push(token);
    start = performance.now();
  }
  if (tokens && checked.join() !== tokens.join()) {
    throw new Error("this browser computes other tokens than the device that made this file");
  }
  say(tokens ? "Checked: this browser computes what the trainer's device computed." : "");
  return leastMs;
}

/**
 * Lets the GPU write the next texts. Throws unless it gives every logit of the checked text as the
 * processor does, in less than `limitMs` a token. A text may be under way meanwhile.
 */
async function useGpu(limitMs) {
  trying = true;
  refresh();
  let opened;
  try {
    opened = await GpuModel.open(gpuParts, cpu, limitMs < Number.POSITIVE_INFINITY);
    const ms = await agreedMs(opened, kit.check.prompt, checked, checkedLogits, limitMs);
    if (Number.isNaN(ms)) throw new Error("it computes other numbers than the processor");
    if (ms >= limitMs) throw new Error("it is slower than the processor");
    model = gpu = opened;
    if (!writing) say("Checked: every number that the GPU computes is the processor's.");
  } catch (error) {
    opened?.close();
    throw error;
  } finally {
    trying = false;
    element("player").value = gpu ? "gpu" : "cpu";
    refresh();
  }
}

function useCpu() {
  gpu?.close();
  gpu = null;
  model = cpu;
  element("player").value = "cpu";
}

/** Shows what can be done now. */
function refresh() {
  element("write").hidden = writing;
  element("end").hidden = !writing;
  element("player").disabled = writing || trying;
}

/** A person chooses what computes the next text. */
async function choosePlayer() {
  if (element("player").value === "cpu") {
    useCpu();
    return;
  }
  say("Checking the GPU\u2026");
  await useGpu(Number.POSITIVE_INFINITY).catch((error) => {
    say(`The GPU is not used: ${error.message}.`);
  });
}

/** What the fields ask for; throws for what they cannot mean. */
function wishes() {
  const number = (id, least, most, whole) => {
    const { value, name } = element(id);
    const found = Number(value);
    if (value.trim() === "" || !(found >= least && found <= most) || (whole && found % 1)) {
      throw new RangeError(
        `${name} must be a ${whole ? "whole " : ""}number from ${least} to ${most}.`,
      );
    }
    return found;
  };
  return {
    temperature: number("temperature", 0, 10),
    topK: number("top-k", 0, 1e6, true),
    topP: number("top-p", 1e-6, 1),
    seed: element("seed").value.trim()
      ? number("seed", 0, 2 ** 32 - 1, true)
      : 1 + Math.floor(Math.random() * 9999),
    limit: number("limit", 1, 4096, true),
    stop: element("stop").value,
  };
}

function say(text) {
  element("said").textContent = text;
}

function show(index) {
  const { probability, likeliest } = choices[index];
  marked?.classList.remove("marked");
  marked = element("text").querySelector(`[data-i="${index}"]`);
  marked.classList.add("marked");
  const percent = (p) => (p < 0.001 ? "under 0.1 %" : `${(100 * p).toPrecision(2)} %`);
  const name = (token) =>
    `\u201c${decoder.decode(bytesOf(token)).replaceAll("\n", "\u23ce").replaceAll(" ", "\u2423")}\u201d`;
  const others = likeliest.map(([token, p]) => `${name(token)} ${percent(p)}`).join(", ");
  element("likeliest").textContent = `Chosen with ${percent(probability)}. Likeliest: ${others}`;
}

async function write() {
  let asked;
  try {
    asked = wishes();
  } catch (error) {
    say(error.message);
    return;
  }
  writing = true;
  refresh();
  const prompt = element("prompt").value;
  const used = model;
  try {
    await writeText(used, asked, prompt);
  } catch (error) {
    if (used === cpu) throw error;
    useCpu(); // the GPU was lost: the processor writes the same text
    await writeText(cpu, asked, prompt);
  }
  writing = false;
  refresh();
}

async function writeText(used, asked, prompt) {
  const text = element("text");
  const begin = document.createElement("span");
  begin.textContent = prompt;
  begin.className = "prompt";
  text.replaceChildren(begin);
  element("likeliest").textContent = "";
  choices = [];
  marked = null;
  const stream = new TextDecoder();
  const pick = (number) => choose(used.mantissas, used.exponent[0], asked, number);
  const ids = [kit.separator, ...tokenizer.encode(prompt)];
  let written = "";
  let start = performance.now();
  const add = (piece, choice) => {
    const span = document.createElement("span");
    span.textContent = piece;
    if (choice) {
      span.dataset.i = String(choices.length);
      span.dataset.token = String(choice.token);
      span.style.setProperty("--doubt", String(1 - choice.probability));
      choices.push(choice);
    }
    text.append(span);
    written += piece;
  };
  for await (const choice of generate(used, ids, asked.limit, pick)) {
    if (choice.token === kit.separator || !writing) break;
    if (choices.length === 0) start = performance.now();
    add(stream.decode(bytesOf(choice.token), { stream: true }), choice);
    const rate = ((choices.length - 1) * 1000) / (performance.now() - start);
    const seed = asked.temperature ? `, seed ${asked.seed}` : "";
    say(
      `${choices.length} tokens${choices.length > 1 ? `, ${Math.round(rate)} a second` : ""}${seed}`,
    );
    if (asked.stop && written.includes(asked.stop)) break;
  }
  add(stream.decode(), null);
  if (writing && choices.length === 0) say("The model ends the text at once.");
}

function showFacts() {
  for (const [name, value] of kit.facts) {
    const row = document.createElement("div");
    const term = document.createElement("dt");
    const fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = value;
    row.append(term, fact);
    element("facts").append(row);
  }
}

async function main() {
  showFacts();
  let tokenMs;
  try {
    await open();
    tokenMs = await check();
  } catch (error) {
    say(`This file cannot be used here: ${error.message}.`);
    document.documentElement.dataset.state = "error";
    return;
  }
  const text = element("text");
  for (const event of ["pointerover", "click"]) {
    text.addEventListener(event, ({ target }) => {
      if (target.dataset.i) show(Number(target.dataset.i));
    });
  }
  text.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !choices.length) return;
    event.preventDefault();
    const at = marked ? Number(marked.dataset.i) : -1;
    show(Math.max(0, Math.min(choices.length - 1, at + move)));
  });
  element("write").addEventListener("click", write);
  element("end").addEventListener("click", () => {
    writing = false;
  });
  element("player").addEventListener("change", choosePlayer);
  element("write").disabled = false;
  refresh();
  document.documentElement.dataset.state = "ready";
  if (navigator.gpu && tokenMs > SLOW_MS) await useGpu(tokenMs).catch(() => {});
}

main();
