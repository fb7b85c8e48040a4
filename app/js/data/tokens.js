/** Documents in, one stream of token ids out, counted in tokens and in bytes of text. */

const encoder = new TextEncoder();

export class TokenCollector {
  /** @param {import("./bpe.js").ByteLevelBpe} tokenizer @param {number} separator goes before each document */
  constructor(tokenizer, separator) {
    this.tokenizer = tokenizer;
    this.separator = separator;
    const Ids = tokenizer.size <= 1 << 16 ? Uint16Array : Uint32Array;
    this.tokens = new Ids(1 << 16);
    this.length = 0;
    this.documents = 0;
    this.bytes = 0;
  }

  /** Begin a document. */
  start() {
    this.#append([this.separator]);
    this.documents++;
  }

  /** Text of the current document. Names of special tokens in it are ordinary text. */
  add(text) {
    this.#append(this.tokenizer.encode(text, true));
    this.bytes += encoder.encode(text).length;
  }

  document(text) {
    this.start();
    this.add(text);
  }

  #append(ids) {
    const needed = this.length + ids.length;
    if (needed > this.tokens.length) {
      const grown = new this.tokens.constructor(Math.max(needed, this.tokens.length * 2));
      grown.set(this.tokens);
      this.tokens = grown;
    }
    this.tokens.set(ids, this.length);
    this.length = needed;
  }

  /** @param {number} least fill up with separators to so many tokens */
  finish(least) {
    if (this.length < least) this.#append(new Array(least - this.length).fill(this.separator));
    const tokens = this.tokens.slice(0, this.length);
    return { tokens, documents: this.documents, bytes: this.bytes };
  }
}
