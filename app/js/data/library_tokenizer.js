/**
 * Tokenizers that bpe.js does not cover (other normalizers, splits or stripping tokens), through
 * @huggingface/tokenizers: slower, and special tokens named in a text always count as such.
 */
import { Tokenizer } from "@huggingface/tokenizers";
import { ByteLevelBpe, ordinaryIds, readTokenBytes } from "./bpe.js";
import { UnsupportedError } from "./regex.js";

/** The exact fast encoder where it covers the tokenizer, else the library. */
export function buildTokenizer(spec) {
  try {
    return new ByteLevelBpe(spec);
  } catch (error) {
    if (error instanceof UnsupportedError) return new LibraryTokenizer(spec);
    throw error;
  }
}

export class LibraryTokenizer {
  /** @param {object} spec a parsed tokenizer.json of a byte-level BPE model */
  constructor(spec) {
    const parts = JSON.stringify([spec.pre_tokenizer, spec.decoder]);
    if (!spec.model?.merges || !parts.includes('"ByteLevel"')) {
      throw new UnsupportedError("it is no byte-level BPE");
    }
    this.tokenizer = new Tokenizer(spec, {});
    const added = spec.added_tokens ?? [];
    this.added = new Map(added.map((token) => [token.content, token.id]));
    this.ordinary = ordinaryIds(added);
    this.vocabulary = new Map(Object.entries(spec.model.vocab));
    this.size = 1 + Math.max(...this.vocabulary.values(), ...this.added.values());
  }

  encode(text) {
    return text
      ? this.tokenizer.encode(text.toWellFormed(), { add_special_tokens: false }).ids
      : [];
  }

  tokenBytes() {
    return readTokenBytes(this);
  }
}
