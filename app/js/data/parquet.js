/**
 * One flat string column out of a parquet file, with every length checked before it is believed.
 *
 * hyparquet parses the thrift structures and its compressors unpack the pages; the pages themselves are
 * walked here, since a hostile page may declare billions of values or repeat a run for ever.
 */

import { decompress as unpackZstd } from "fzstd";
import { parquetMetadata } from "hyparquet";
import { parquetHeader } from "hyparquet/src/column.js";
import { deltaLengthByteArray } from "hyparquet/src/delta.js";
import { compressors } from "hyparquet-compressors";

export class DamagedError extends Error {}

const MAGIC = 0x31524150;
const DICTIONARY_ENCODINGS = ["PLAIN_DICTIONARY", "RLE_DICTIONARY"];

function check(condition, message) {
  if (!condition) throw new DamagedError(message);
}

/** @param {Uint8Array} tail the last bytes of a file @returns {number} bytes of footer and trailer */
export function footerLength(tail) {
  check(tail.length >= 12, "it is too short to be a parquet file");
  const view = new DataView(tail.buffer, tail.byteOffset, tail.byteLength);
  check(view.getUint32(tail.length - 4, true) === MAGIC, "it does not end like a parquet file");
  return view.getUint32(tail.length - 8, true) + 8;
}

/**
 * What Python plans with: the string columns and where each row group keeps them.
 * @param {Uint8Array} tail at least the whole footer @param {number} fileBytes @param {string} wanted
 */
export function readFooter(tail, fileBytes, wanted) {
  const metadata = parquetMetadata(tail, {
    geoparquet: false,
    parsers: { stringFromBytes: () => "" },
  });
  const columns = flatColumns(metadata.schema);
  const column =
    columns.find((c) => c.name === (wanted || "text")) ?? (wanted ? undefined : columns[0]);
  if (!column) return { columns: columns.map((c) => c.name), column: null };
  const groups = metadata.row_groups.map((group) => {
    const chunk = group.columns[column.index];
    const facts = chunk?.meta_data;
    check(facts && !chunk.file_path, "a row group lacks the column");
    check(
      facts.path_in_schema.join(".") === column.name,
      "the columns of a row group are mixed up",
    );
    const offsets = [facts.dictionary_page_offset, facts.data_page_offset]
      .filter(Boolean)
      .map(Number);
    const start = Math.min(...offsets);
    const end = start + Number(facts.total_compressed_size);
    const rows = Number(group.num_rows);
    const unpacked = Number(facts.total_uncompressed_size);
    const whole = [start, end, rows, unpacked].every((n) => Number.isSafeInteger(n) && n >= 0);
    const holds = rows === 0 || start < end;
    check(whole && holds && end <= fileBytes, "a column chunk lies outside the file");
    return { rows, start, end, unpacked, codec: facts.codec ?? "unknown" };
  });
  return {
    columns: columns.map((c) => c.name),
    column: column.name,
    optional: column.optional,
    groups,
  };
}

/** Top-level BYTE_ARRAY columns that hold text. `index` counts leaves, as row groups do. */
function flatColumns(schema) {
  const columns = [];
  let at = 1;
  let leaf = 0;
  const skip = () => {
    const { num_children: children = 0 } = schema[at++] ?? {};
    if (!children) leaf++;
    for (let i = 0; i < children; i++) skip();
  };
  check(schema.length > 1, "it has no columns");
  while (at < schema.length) {
    const element = schema[at];
    const text = element.converted_type === "UTF8" || element.logical_type?.type === "STRING";
    const flat = !element.num_children && element.repetition_type !== "REPEATED";
    if (flat && element.type === "BYTE_ARRAY" && text) {
      columns.push({
        name: element.name,
        index: leaf,
        optional: element.repetition_type === "OPTIONAL",
      });
    }
    skip();
  }
  return columns;
}

/**
 * The texts of one column chunk as UTF-8 bytes, null where a row has none.
 * @param {Uint8Array} chunk
 * @param {{rows: number, codec: string, optional: boolean, maxBytes: number}} facts
 * @returns {(Uint8Array | null)[]}
 */
export function readColumnChunk(chunk, { rows, codec, optional, maxBytes }) {
  const view = new DataView(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  const reader = { view, offset: 0 };
  const texts = [];
  let dictionary = null;
  let budget = maxBytes;
  let textBytes = 0;
  while (texts.length < rows) {
    check(reader.offset < chunk.length, `it ends after ${texts.length} of ${rows} rows`);
    const header = parquetHeader(reader);
    const packed = header.compressed_page_size;
    const unpacked = header.uncompressed_page_size;
    check(packed >= 0 && reader.offset + packed <= chunk.length, "a page is longer than its chunk");
    check(unpacked >= 0 && unpacked <= budget, `it unpacks to more than ${maxBytes} bytes`);
    budget -= unpacked;
    const body = chunk.subarray(reader.offset, reader.offset + packed);
    reader.offset += packed;
    if (header.type === "DICTIONARY_PAGE") {
      const count = header.dictionary_page_header?.num_values;
      dictionary = plainTexts(unpack(body, unpacked, codec), count);
    } else if (header.type === "DATA_PAGE" || header.type === "DATA_PAGE_V2") {
      const page = openPage(header, body, codec, optional, rows - texts.length);
      const values = pageValues(page, dictionary);
      let next = 0;
      for (let i = 0; i < page.count; i++) {
        const text = page.defined === null || page.defined[i] ? values[next++] : null;
        textBytes += text?.length ?? 0; // a dictionary makes few bytes into as many as it likes
        texts.push(text);
      }
      check(textBytes <= maxBytes, `its texts have more than ${maxBytes} bytes`);
    }
  }
  return texts;
}

/** Levels and values of a data page of either version. */
function openPage(header, body, codec, optional, rowsLeft) {
  const facts = header.data_page_header ?? header.data_page_header_v2;
  check(facts, "a page has no header");
  const count = facts.num_values;
  check(count >= 0 && count <= rowsLeft, "a page declares more values than the row group has rows");
  if (header.type === "DATA_PAGE") {
    const data = unpack(body, header.uncompressed_page_size, codec);
    if (!optional) return { count, encoding: facts.encoding, data, defined: null };
    check(data.length >= 4, "a page is too short");
    const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
    check(length <= data.length - 4, "levels are longer than their page");
    const defined = runs(data.subarray(4, 4 + length), 1, count);
    return { count, encoding: facts.encoding, data: data.subarray(4 + length), defined };
  }
  const repeated = facts.repetition_levels_byte_length;
  const levels = facts.definition_levels_byte_length;
  check(
    repeated === 0 && levels >= 0 && levels <= body.length,
    "levels are longer than their page",
  );
  const defined = optional ? runs(body.subarray(0, levels), 1, count) : null;
  const rest = body.subarray(levels);
  const size = header.uncompressed_page_size - levels;
  check(size >= 0, "levels are longer than their page");
  const data = facts.is_compressed && size ? unpack(rest, size, codec) : rest;
  return { count, encoding: facts.encoding, data, defined };
}

function pageValues({ count, encoding, data, defined }, dictionary) {
  let present = count;
  if (defined !== null) {
    present = 0;
    for (const level of defined) present += level;
  }
  if (encoding === "PLAIN") return plainTexts(data, present);
  if (DICTIONARY_ENCODINGS.includes(encoding)) {
    check(dictionary, "a page lacks its dictionary");
    if (!present) return [];
    check(data.length && data[0] <= 32, "a dictionary index is malformed");
    const indexes = data[0] ? runs(data.subarray(1), data[0], present) : new Uint32Array(present);
    return Array.from(indexes, (index) => {
      check(index < dictionary.length, "an index lies outside the dictionary");
      return dictionary[index];
    });
  }
  if (encoding === "DELTA_LENGTH_BYTE_ARRAY") {
    const values = new Array(present);
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    if (present) deltaLengthByteArray({ view, offset: 0 }, present, values);
    return values;
  }
  throw new DamagedError(`the encoding ${encoding} is not supported`);
}

/** Values that are each a 4-byte length and the bytes, as views into `data`. */
function plainTexts(data, count) {
  check(Number.isInteger(count) && count >= 0 && count * 4 <= data.length, "values are missing");
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const values = new Array(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    check(at + 4 <= data.length, "values are missing");
    const length = view.getUint32(at, true);
    at += 4;
    check(length <= data.length - at, "a value is longer than its page");
    values[i] = data.subarray(at, at + length);
    at += length;
  }
  return values;
}

/** Decode the hybrid of runs and bit-packed groups: exactly `count` values of `width` bits. */
function runs(data, width, count) {
  const out = new Uint32Array(count);
  const bytesWide = (width + 7) >> 3;
  let at = 0;
  let seen = 0;
  while (seen < count) {
    let header = 0;
    for (let shift = 0; ; shift += 7) {
      check(at < data.length && shift < 35, "a run is cut off");
      header += (data[at] & 127) * 2 ** shift;
      if (data[at++] < 128) break;
    }
    if (header & 1) {
      const values = Math.min(Math.floor(header / 2) * 8, count - seen);
      check(at + Math.ceil((values * width) / 8) <= data.length, "a run is cut off");
      for (let i = 0; i < values; i++) out[seen++] = bits(data, at * 8 + i * width, width);
      at += Math.floor(header / 2) * width;
    } else {
      check(at + bytesWide <= data.length, "a run is cut off");
      let value = 0;
      for (let i = 0; i < bytesWide; i++) value += data[at++] * 2 ** (8 * i);
      const end = Math.min(seen + Math.floor(header / 2), count);
      check(end > seen, "a run is empty");
      out.fill(value, seen, end);
      seen = end;
    }
  }
  return out;
}

function bits(data, at, width) {
  let value = 0;
  for (let i = 0; i < width; i++) {
    value += ((data[(at + i) >> 3] >> ((at + i) & 7)) & 1) * 2 ** i;
  }
  return value;
}

/** Decompress into exactly `size` bytes; a stream that yields another length is refused. */
function unpack(body, size, codec) {
  let out = body;
  try {
    if (codec === "ZSTD") out = size ? unpackZstd(body, new Uint8Array(size)) : new Uint8Array(0);
    else if (codec !== "UNCOMPRESSED") {
      check(compressors[codec], `the compression ${codec} is not supported`);
      out = compressors[codec](body, size);
    }
  } catch (error) {
    if (error instanceof DamagedError) throw error;
    throw new DamagedError(`a page does not unpack (${error.message ?? error})`);
  }
  check(out?.length === size, "a page unpacks to another length than it declares");
  return out;
}
