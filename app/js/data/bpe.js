/**
 * Byte-level byte-pair encoding, exact against the Rust reference (Hugging Face tokenizers), with a cache
 * of words: most words of running text are seen again, so a look-up replaces the merging.
 *
 * Merging takes the pair of lowest rank, leftmost first, from a heap: n log n in the length of a word.
 */
import { buildPretokenizer } from "./pretokenize.js";
import { escapeRegex, UnsupportedError } from "./regex.js";

const CACHE_ENTRIES = 1 << 17;
const CACHED_WORD_CHARACTERS = 48;
const POSITIONS = 2 ** 26;
const MAX_VOCABULARY_TOKENS = 1 << 18;

/** The alphabet of byte-level models: one printable character a byte. */
const BYTE_CHARACTERS = (() => {
  const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
})();

export class ByteLevelBpe {
  /** @param {object} spec a parsed tokenizer.json; throws UnsupportedError for other kinds */
  constructor(spec) {
    const { model } = spec;
    if (model?.type !== "BPE" && !(model?.merges && model?.vocab)) {
      throw new UnsupportedError(`model ${model?.type}`);
    }
    const odd = ["dropout", "continuing_subword_prefix", "end_of_word_suffix"];
    if (odd.some((key) => model[key]) || model.byte_fallback) {
      throw new UnsupportedError("BPE that is not byte-level");
    }
    if (spec.normalizer !== null && spec.normalizer !== undefined) {
      if (spec.normalizer.type !== "NFC") throw new UnsupportedError("normalizer");
      this.normalize = (text) => text.normalize("NFC");
    }
    this.split = buildPretokenizer(spec.pre_tokenizer);
    this.ignoreMerges = model.ignore_merges === true;
    this.#readVocabulary(model, spec.added_tokens ?? []);
    this.encoder = new TextEncoder();
    this.bytes = new Uint8Array(1 << 12);
    /** @type {Map<string, number | number[]>} */
    this.cache = new Map();
  }

  #readVocabulary(model, added) {
    const entries = Object.entries(model.vocab);
    /** Size of the id space: the largest id + 1. */
    this.size = 0;
    for (const id of [...entries.map(([, i]) => i), ...added.map((token) => token.id)]) {
      if (!Number.isInteger(id) || id < 0 || id >= MAX_VOCABULARY_TOKENS) {
        throw new Error(`token id ${id} is out of range`);
      }
      this.size = Math.max(this.size, id + 1);
    }
    this.vocabulary = new Map(entries);
    this.byteIds = Int32Array.from(BYTE_CHARACTERS, (c) => this.vocabulary.get(c) ?? -1);
    if (this.byteIds.includes(-1)) throw new UnsupportedError("a byte has no token");
    this.mergedIds = new Int32Array(model.merges.length);
    /** Pair of ids (left * size + right) to rank. */
    this.ranks = new Map();
    model.merges.forEach((merge, rank) => {
      const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
      const ids = [left, right, left + right].map((token) => this.vocabulary.get(token));
      if (ids.includes(undefined)) throw new Error(`merge ${rank} names an unknown token`);
      this.ranks.set(ids[0] * this.size + ids[1], rank);
      this.mergedIds[rank] = ids[2];
    });
    /** @type {Map<string, number>} */
    this.added = new Map(added.map((token) => [token.content, token.id]));
    if (added.some((token) => token.single_word || token.lstrip || token.rstrip)) {
      throw new UnsupportedError("added tokens that strip or match whole words");
    }
    if (added.some((token) => token.normalized) && this.normalize) {
      throw new UnsupportedError("added tokens in normalized text");
    }
    /** Ids of added tokens that stand for text, such as runs of spaces. */
    this.ordinary = ordinaryIds(added);
    this.addedRegex = anyOf([...this.added.keys()]);
    const ordinary = [...this.added].filter(([, id]) => this.ordinary.has(id));
    this.ordinaryRegex = anyOf(ordinary.map(([content]) => content));
  }

  /**
   * Ids of a text. Lone surrogates count as U+FFFD.
   * @param {string} text
   * @param {boolean} plain treat the names of special tokens as ordinary text
   * @returns {number[]}
   */
  encode(text, plain = false) {
    const out = [];
    const whole = text.toWellFormed();
    const names = plain ? this.ordinaryRegex : this.addedRegex;
    if (names === null) {
      this.#encodePart(whole, out);
      return out;
    }
    for (const part of whole.split(names)) {
      const id = names.test(part) ? this.added.get(part) : undefined;
      if (id !== undefined) out.push(id);
      else if (part) this.#encodePart(part, out);
    }
    return out;
  }

  #encodePart(text, out) {
    const { cache } = this;
    for (const piece of this.split(this.normalize ? this.normalize(text) : text)) {
      let ids = cache.get(piece);
      if (ids === undefined) ids = this.#encodePiece(piece);
      if (typeof ids === "number") out.push(ids);
      else for (const id of ids) out.push(id);
    }
  }

  /** Merge one piece and remember it. @returns {number | number[]} */
  #encodePiece(piece) {
    if (this.bytes.length < piece.length * 3) this.bytes = new Uint8Array(piece.length * 3);
    const { written } = this.encoder.encodeInto(piece, this.bytes);
    const ids = this.#wholeToken(written) ?? merge(this.bytes, written, this);
    const result = ids.length === 1 ? ids[0] : ids;
    if (piece.length <= CACHED_WORD_CHARACTERS) {
      if (this.cache.size >= CACHE_ENTRIES) this.cache.clear();
      // A key cut out of a long text would keep that text alive: build a string of its own.
      const key = piece.length < 13 ? piece : [...piece].join("");
      this.cache.set(key, result);
    }
    return result;
  }

  #wholeToken(length) {
    if (!this.ignoreMerges) return undefined;
    let name = "";
    for (let i = 0; i < length; i++) name += BYTE_CHARACTERS[this.bytes[i]];
    const id = this.vocabulary.get(name);
    return id === undefined ? undefined : [id];
  }

  tokenBytes() {
    return readTokenBytes(this);
  }
}

/** @param {{id: number, special?: boolean}[]} added */
export function ordinaryIds(added) {
  return new Set(added.filter((token) => !token.special).map((token) => token.id));
}

/** Splits a text at these names, of which the longest counts. @param {string[]} names */
function anyOf(names) {
  const longestFirst = names.sort((a, b) => b.length - a.length).map(escapeRegex);
  return names.length ? new RegExp(`(${longestFirst.join("|")})`, "u") : null;
}

/**
 * The bytes of every token (a special token's are its name), end to end, and where each ends.
 * @param {{size: number, vocabulary: Map<string, number>, added: Map<string, number>}} tokenizer
 */
export function readTokenBytes({ size, vocabulary, added }) {
  const encoder = new TextEncoder();
  const byteOf = new Map(BYTE_CHARACTERS.map((c, b) => [c, b]));
  const parts = new Array(size).fill([]);
  for (const [name, id] of vocabulary) {
    const bytes = Array.from(name, (c) => byteOf.get(c));
    parts[id] = bytes.includes(undefined) ? encoder.encode(name) : bytes;
  }
  for (const [content, id] of added) parts[id] = encoder.encode(content);
  const ends = new Uint32Array(size);
  let end = 0;
  parts.forEach((part, id) => {
    end += part.length;
    ends[id] = end;
  });
  const bytes = new Uint8Array(end);
  parts.forEach((part, id) => {
    bytes.set(part, ends[id] - part.length);
  });
  return { bytes, ends };
}

/** Merge the first `length` bytes by rank. @returns {number[]} */
function merge(bytes, length, { byteIds, ranks, mergedIds, size }) {
  const ids = new Int32Array(length);
  for (let i = 0; i < length; i++) ids[i] = byteIds[bytes[i]];
  if (length === 1) return [ids[0]];
  const next = new Int32Array(length);
  const previous = new Int32Array(length);
  const heap = new Heap();
  const offer = (left) => {
    const rank = ranks.get(ids[left] * size + ids[next[left]]);
    if (rank !== undefined) heap.push(rank * POSITIONS + left);
  };
  for (let i = 0; i < length; i++) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  for (let i = 0; i + 1 < length; i++) offer(i);
  while (heap.length) {
    const entry = heap.pop();
    const left = entry % POSITIONS;
    const rank = (entry - left) / POSITIONS;
    const right = next[left];
    // An entry is stale when either side has been merged since.
    if (ids[left] < 0 || right >= length || ranks.get(ids[left] * size + ids[right]) !== rank)
      continue;
    ids[left] = mergedIds[rank];
    ids[right] = -1;
    next[left] = next[right];
    if (next[left] < length) {
      previous[next[left]] = left;
      offer(left);
    }
    if (previous[left] >= 0) offer(previous[left]);
  }
  return Array.from(ids.filter((id) => id >= 0));
}

/** A binary heap of numbers, smallest first. */
class Heap {
  #items = [];

  get length() {
    return this.#items.length;
  }

  push(value) {
    const items = this.#items;
    let at = items.push(value) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (items[parent] <= value) break;
      items[at] = items[parent];
      at = parent;
    }
    items[at] = value;
  }

  pop() {
    const items = this.#items;
    const top = items[0];
    const last = items.pop();
    let at = 0;
    for (let child = 1; child < items.length; child = 2 * at + 1) {
      if (child + 1 < items.length && items[child + 1] < items[child]) child++;
      if (items[child] >= last) break;
      items[at] = items[child];
      at = child;
    }
    if (items.length) items[at] = last;
    return top;
  }
}
