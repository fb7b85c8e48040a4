/**
 * A model of an inference kit on one WebAssembly memory: Python has laid everything out
 * (daisychain.export.kit); here tokens go in and integer logits come out.
 */

/**
 * @typedef {object} Layout
 * @property {number} pages
 * @property {number} stackTop
 * @property {number} context address of the kernels' context
 * @property {string[]} kernels
 * @property {Record<string, number[]>} plans kernel, record, kernel, record, ...
 * @property {number} prompt address of the prompt's tokens
 * @property {number} logits address of the logits: an exponent, then a mantissa a token
 * @property {number} scalars address of the scalars
 */

/** Let the page live: a message comes sooner than any timer. */
export function rest() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}

export class Model {
  #decode;
  #reset;

  /**
   * @param {WebAssembly.Module} module
   * @param {Layout} layout
   * @param {number} contextTokens
   * @param {number} vocabulary
   */
  constructor(module, layout, contextTokens, vocabulary) {
    const memory = new WebAssembly.Memory({ initial: layout.pages, maximum: layout.pages });
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    /** @type {WebAssembly.Global} */ (exports.__stack_pointer).value = layout.stackTop;
    const plan = (name) => {
      const words = layout.plans[name];
      const calls = [];
      for (let i = 0; i < words.length; i += 2) {
        calls.push([exports[layout.kernels[words[i]]], words[i + 1]]);
      }
      return () => {
        for (const [kernel, record] of calls) kernel(record, layout.context);
      };
    };
    this.#decode = plan("decode");
    this.#reset = plan("decode_reset");
    this.memory = new Uint8Array(memory.buffer);
    this.contextTokens = contextTokens;
    this.tokens = new Uint32Array(memory.buffer, layout.prompt, contextTokens);
    this.scalars = new Uint32Array(memory.buffer, layout.scalars);
    this.logits = new Int32Array(memory.buffer, layout.logits, 1 + vocabulary);
    this.exponent = this.logits.subarray(0, 1);
    this.mantissas = this.logits.subarray(1);
    this.length = 0;
  }

  /**
   * Put content where the layout wants it. Of narrow weights with one plane only the high bytes are
   * given: 8 of each 16, the low ones are zero.
   * @param {number} address
   * @param {Uint8Array} content
   * @param {number} planes
   */
  put(address, content, planes) {
    if (planes === 2) {
      this.memory.set(content, address);
      return;
    }
    const target = new Uint32Array(this.memory.buffer, address, content.length / 2);
    const source = new Uint32Array(content.buffer, content.byteOffset, content.length / 4);
    for (let i = 0; i < source.length; i += 2) {
      target[2 * i] = source[i];
      target[2 * i + 1] = source[i + 1];
    }
  }

  /** Forget everything and take tokens; the logits are those after the last. @param {number[]} tokens */
  async feed(tokens) {
    this.#reset();
    this.length = 0;
    for (const token of tokens) await this.take(token);
  }

  /** Take one token; the logits are those of the one after it. @param {number} token */
  async take(token) {
    this.tokens[this.length] = token;
    this.length += 1;
    this.#decode();
    await rest();
  }
}

/**
 * Tokens after a prompt, as daisychain.generate: a full context slides, its later half is fed again.
 * `choose` picks a token from the model's logits.
 * @template {{token: number}} Choice
 * @param {Pick<Model, "feed" | "take" | "contextTokens">} model
 * @param {number[]} prompt at least one token
 * @param {number} limit
 * @param {(number: number) => Choice} choose
 * @returns {AsyncGenerator<Choice>}
 */
export async function* generate(model, prompt, limit, choose) {
  let tokens = prompt.slice(-model.contextTokens);
  await model.feed(tokens);
  for (let number = 0; number < limit; number++) {
    const choice = choose(number);
    yield choice;
    if (number + 1 === limit) return;
    if (tokens.length === model.contextTokens) {
      tokens = [...tokens.slice(model.contextTokens >> 1), choice.token];
      await model.feed(tokens);
    } else {
      tokens.push(choice.token);
      await model.take(choice.token);
    }
  }
}
