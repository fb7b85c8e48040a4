/**
 * The model of an inference kit on WebGPU, beside the one on WebAssembly that it must agree with: the
 * same plans by the player of the training page.
 */
import { WebGPUPlayer } from "../webgpu_player.js";

const PACKED_FEATURE = "packed_4x8_integer_dot_product";
const TRIED_TOKENS = 3;
const FEED_TOKENS = 32; // in one command buffer: a driver ends what takes it seconds

/**
 * @typedef {object} GpuParts
 * @property {{key: string}[]} sources the kernels of both variants, see WebGPUPlayer.compile
 * @property {Record<string, string>} programs a variant's program, see WebGPUPlayer.load
 * @property {[string, number, number][]} copies buffer, address in the WebAssembly memory, bytes
 */

export class GpuModel {
  #player;

  /** @param {WebGPUPlayer} player @param {import("./model.js").Model} model */
  constructor(player, model) {
    this.#player = player;
    this.contextTokens = model.contextTokens;
    this.vocabulary = model.mantissas.length;
    this.length = 0;
  }

  /**
   * Opens a device and gives it what the WebAssembly model holds. Throws when there is none, or when
   * it cannot hold the model.
   * @param {GpuParts} parts
   * @param {import("./model.js").Model} model
   * @param {boolean} mustBeReal refuse one whose work the processor does
   */
  static async open({ sources, programs, copies }, model, mustBeReal) {
    if (!navigator.gpu) throw new Error("this browser has no WebGPU");
    const player = await WebGPUPlayer.open(navigator.gpu);
    try {
      if (mustBeReal && player.info.includes("fallback")) throw new Error("it is emulated");
      const variant = player.languageFeatures.includes(PACKED_FEATURE) ? "packed" : "unpacked";
      const used = sources.filter(({ key }) => key.endsWith(`.${variant}`));
      const [failure] = JSON.parse(await player.compile(JSON.stringify(used)));
      if (failure) throw new Error(failure.join(": "));
      await player.load(programs[variant]);
      for (const [name, address, bytes] of copies) {
        player.write(name, 0, model.memory.subarray(address, address + bytes));
      }
      const words = JSON.parse(programs[variant]).scalarBytes / 4;
      player.writeScalars(0, model.scalars.subarray(0, words));
    } catch (error) {
      player.destroy();
      throw error;
    }
    return new GpuModel(player, model);
  }

  /** As Model.feed. @param {number[]} tokens */
  async feed(tokens) {
    this.#player.write("prompt", 0, Uint32Array.from(tokens));
    this.length = tokens.length;
    for (let at = 0; at < tokens.length; at += FEED_TOKENS) {
      const plans = tokens.slice(at, at + FEED_TOKENS).map(() => "decode");
      await this.#run(at ? plans : ["decode_reset", ...plans]);
    }
  }

  /** As Model.take. @param {number} token */
  async take(token) {
    this.#player.write("prompt", 4 * this.length, Uint32Array.of(token));
    this.length += 1;
    await this.#run(["decode"]);
  }

  close() {
    this.#player.destroy();
  }

  /** @param {string[]} plans */
  async #run(plans) {
    const { buffer } = await this.#player.run(plans, "logits");
    this.logits = new Int32Array(buffer, 0, 1 + this.vocabulary);
    this.exponent = this.logits.subarray(0, 1);
    this.mantissas = this.logits.subarray(1);
  }
}

/**
 * Lets the GPU take tokens whose logits are known.
 * @param {GpuModel} gpu
 * @param {number[]} prompt
 * @param {number[]} tokens what comes after it
 * @param {Int32Array[]} logits before each of the tokens: the exponent, then the mantissas
 * @param {number} limitMs a token; who is slower at first need not go on
 * @returns {Promise<number>} ms a token; NaN as soon as a logit differs
 */
export async function agreedMs(gpu, prompt, tokens, logits, limitMs) {
  let least = Number.POSITIVE_INFINITY;
  await gpu.feed(prompt);
  for (const [i, expected] of logits.entries()) {
    if (i) {
      const start = performance.now();
      await gpu.take(tokens[i - 1]);
      least = Math.min(least, performance.now() - start);
    }
    if (!expected.every((word, k) => word === gpu.logits[k])) return Number.NaN;
    if (i >= TRIED_TOKENS && least >= limitMs) break;
  }
  return least;
}
