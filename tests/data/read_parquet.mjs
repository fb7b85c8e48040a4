// Read parquet cases under Node: [{name, file | chunk, facts, column, flips}] in, outcomes out.
import { readFileSync } from "node:fs";
import { decodeText, parquetDocuments } from "../../app/js/data/documents.js";
import { DamagedError, readColumnChunk } from "../../app/js/data/parquet.js";

function read({ file, chunk, facts, column = "", flips = [], cut = 0, maxBytes = 1 << 22 }) {
  const bytes = new Uint8Array(file ? readFileSync(file) : Buffer.from(chunk, "base64"));
  for (const [at, value] of flips) bytes[at % bytes.length] = value;
  const whole = cut ? bytes.subarray(0, cut) : bytes;
  if (file) return [...parquetDocuments(whole, column, maxBytes)];
  const texts = readColumnChunk(whole, { optional: true, maxBytes, ...facts });
  return texts.map((text) => (text === null ? null : decodeText(text, "a row")));
}

const outcomes = JSON.parse(readFileSync(0, "utf8")).map((test) => {
  const start = performance.now();
  let outcome;
  try {
    outcome = { documents: read(test) };
  } catch (error) {
    outcome = { error: error.message, damaged: error instanceof DamagedError, name: error.name };
  }
  return { ...outcome, ms: performance.now() - start, heap: process.memoryUsage().rss };
});
process.stdout.write(JSON.stringify(outcomes));
