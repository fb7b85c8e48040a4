/**
 * The data Worker: fetches, unpacks and tokenizes. Python asks with {id, op, ...arguments} and gets
 * {id, contents} or {id, failure: {name, message, ...}}; the operations are the methods of `operations`.
 * What to fetch, when, and what to do about a failure is decided in Python (daisychain.data).
 */
import { cachedBytes, clearCache } from "./data/cache.js";
import {
  decodeText,
  jsonLineDocuments,
  missingColumn,
  parquetDocuments,
  textBlocks,
} from "./data/documents.js";
import { Failure, fetchRange, fetchWhole } from "./data/fetch.js";
import { buildTokenizer } from "./data/library_tokenizer.js";
import { DamagedError, footerLength, readFooter } from "./data/parquet.js";
import { UnsupportedError } from "./data/regex.js";
import { rowGroup } from "./data/row_groups.js";
import { TokenCollector } from "./data/tokens.js";
import { holdForEver } from "./worker/lock.js";

/** @type {ReturnType<typeof buildTokenizer> | null} */
let tokenizer = null;

const operations = {
  /** The first: from now on the page notices this Worker's end. */
  async start({ lock }) {
    await holdForEver(lock);
    return {};
  },

  /** Load a tokenizer.json; all later operations use it. */
  async tokenizer({ source, maxBytes }) {
    const { bytes } = await fetchWhole(source, maxBytes);
    tokenizer = buildTokenizer(JSON.parse(decodeText(bytes, "the tokenizer file")));
    const { added, ordinary } = tokenizer;
    return { added: [...added], ordinary: [...ordinary], ...tokenizer.tokenBytes() };
  },

  async encode({ text }) {
    return { ids: Uint32Array.from(tokenizer.encode(text)) };
  },

  /** Tokenize a whole file: kind is "parquet", "jsonl" or "text". */
  async file({ source, kind, column, separator, maxBytes }) {
    const { bytes } = await fetchWhole(source, maxBytes);
    const collector = new TokenCollector(tokenizer, separator);
    if (kind === "text") {
      collector.start();
      for (const block of textBlocks(decodeText(bytes, "the file"))) collector.add(block);
    } else {
      const documents =
        kind === "parquet"
          ? parquetDocuments(bytes, column, maxBytes)
          : jsonLineDocuments(bytes, column);
      for (const document of documents) collector.document(document);
    }
    return collector.finish(0);
  },

  /** An answer of the Hub's API, as text, and the address of its next page. */
  async json({ source, maxBytes }) {
    const { bytes, headers } = await fetchWhole(source, maxBytes);
    const next = /<([^>]*)>;\s*rel="next"/.exec(headers.get("link") ?? "");
    return { text: decodeText(bytes, "the answer"), next: next ? next[1] : "" };
  },

  /** Where a parquet file keeps its text column; one request if the footer fits in `guess` bytes. */
  async footer({ source, fileBytes, column, guess, maxBytes }) {
    const start = Math.max(0, fileBytes - guess);
    let { bytes, url } = await fetchRange(source, start, fileBytes, fileBytes);
    const length = footerLength(bytes);
    if (length > Math.min(maxBytes, fileBytes)) {
      throw new DamagedError(`its footer claims ${length} bytes`);
    }
    let received = bytes.length;
    if (length > bytes.length) {
      const rest = await fetchRange(source, fileBytes - length, start, fileBytes);
      received += rest.bytes.length;
      const whole = new Uint8Array(length);
      whole.set(rest.bytes);
      whole.set(bytes, rest.bytes.length);
      bytes = whole;
    }
    const footer = readFooter(bytes, fileBytes, column);
    if (!footer.column) throw new Failure("column", missingColumn(footer.columns, column));
    return { ...footer, url, received };
  },

  /** Tokenize rows `first` to `last` of a row group, filled up with separators to `least` tokens. */
  async rows({ source, group, limits, first, last, separator, least }) {
    const { texts, url, received } = await rowGroup(source, group, limits);
    const collector = new TokenCollector(tokenizer, separator);
    for (let row = first; row < last; row++) {
      if (texts[row] !== null) collector.document(decodeText(texts[row], `row ${row}`));
    }
    return { ...collector.finish(least), url, received };
  },

  /** Resolve after a while; if it `wakes`, as soon as the device is online again. */
  async wait({ ms, wakes }) {
    await new Promise((resolve) => {
      setTimeout(resolve, ms);
      if (wakes) self.addEventListener("online", resolve, { once: true });
    });
    return {};
  },

  async cachedBytes() {
    return { bytes: await cachedBytes() };
  },

  async clearCache() {
    await clearCache();
    return {};
  },
};

function describe(error) {
  const { message } = error;
  if (error instanceof Failure) return { name: error.kind, message, ...error.facts };
  if (error instanceof DamagedError) return { name: "damaged", message };
  if (error instanceof UnsupportedError) return { name: "unsupported", message };
  return { name: "damaged", message: `${error.name}: ${message}` };
}

self.onmessage = async ({ data: { id, op, ...rest } }) => {
  try {
    const contents = await operations[op](rest);
    const buffers = Object.values(contents).filter(ArrayBuffer.isView);
    self.postMessage(
      { id, contents },
      buffers.map((view) => view.buffer),
    );
  } catch (error) {
    self.postMessage({ id, failure: describe(error) });
  }
};
