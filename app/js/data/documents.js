/** Documents out of files of each kind, as text; what is no valid UTF-8 is refused by its place. */
import { DamagedError, footerLength, readColumnChunk, readFooter } from "./parquet.js";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const BLOCK_CHARACTERS = 1 << 15;

/** @param {Uint8Array} bytes @param {string} where named in the error */
export function decodeText(bytes, where) {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new DamagedError(`${where} is not UTF-8 text`);
  }
}

/** @param {Uint8Array} bytes a whole parquet file @param {string} column "" for the default */
export function* parquetDocuments(bytes, column, maxBytes) {
  const length = footerLength(bytes.subarray(-12));
  if (length > bytes.length) throw new DamagedError("its footer is longer than the file");
  const footer = readFooter(bytes.subarray(-length), bytes.length, column);
  if (!footer.column) throw new DamagedError(missingColumn(footer.columns, column));
  for (const [number, group] of footer.groups.entries()) {
    const chunk = bytes.subarray(group.start, group.end);
    for (const text of readColumnChunk(chunk, { ...group, optional: footer.optional, maxBytes })) {
      if (text !== null) yield decodeText(text, `a text of row group ${number}`);
    }
  }
}

export function missingColumn(columns, wanted) {
  const has = columns.length
    ? `its text columns are ${columns.join(", ")}`
    : "it has no text column";
  return wanted ? `it has no text column named ${wanted}: ${has}` : has;
}

/** One document a line: a JSON string, or an object whose member `column` is one. */
export function* jsonLineDocuments(bytes, column) {
  let number = 0;
  for (const line of decodeText(bytes, "the file").split("\n")) {
    number++;
    if (!line.trim()) continue;
    let value;
    try {
      value = JSON.parse(line);
    } catch {
      throw new DamagedError(`line ${number} is not JSON`);
    }
    if (value !== null && typeof value === "object") value = value[column || "text"];
    if (typeof value !== "string") {
      throw new DamagedError(`line ${number} has no text in "${column || "text"}"`);
    }
    yield value;
  }
}

/**
 * A long text in blocks that end after a run of line ends, where the tokenizer's split pattern always cuts.
 * @param {string} text
 */
export function* textBlocks(text) {
  const lineEnds = /[\r\n]+/g;
  let start = 0;
  while (text.length - start > BLOCK_CHARACTERS) {
    lineEnds.lastIndex = start + BLOCK_CHARACTERS;
    const match = lineEnds.exec(text);
    if (match === null) break;
    yield text.slice(start, lineEnds.lastIndex);
    start = lineEnds.lastIndex;
  }
  if (start < text.length) yield text.slice(start);
}
