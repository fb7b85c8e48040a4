// How fast text becomes tokens: MB/s of UTF-8, for bench/text_speed.py. usage: node text_speed.mjs
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";
import { ByteLevelBpe } from "../app/js/data/bpe.js";
import { parquetDocuments } from "../app/js/data/documents.js";
import { TokenCollector } from "../app/js/data/tokens.js";

const spec = JSON.parse(readFileSync("data/tokenizer.json", "utf8"));
const file = new Uint8Array(readFileSync("data/embedded.parquet"));
const unpack = () => [...parquetDocuments(file, "text", 1 << 28)];
const documents = unpack();
const megabytes = documents.reduce((sum, text) => sum + Buffer.byteLength(text), 0) / 1e6;

function speed(work) {
  const start = performance.now();
  work();
  return megabytes / ((performance.now() - start) / 1000);
}

const own = new ByteLevelBpe(spec);
const encodeAll = () => documents.forEach((text) => void own.encode(text, true));
const library = new Tokenizer(spec, {});
const few = documents.slice(0, documents.length >> 3);
process.stdout.write(
  JSON.stringify({
    "unpack parquet (zstd)": speed(unpack),
    "encode, cold cache": speed(encodeAll),
    "encode, warm cache": speed(encodeAll),
    "unpack, encode and collect": speed(() => {
      const collector = new TokenCollector(own, 0);
      for (const text of parquetDocuments(file, "text", 1 << 28)) collector.document(text);
    }),
    "@huggingface/tokenizers": speed(() => few.forEach((text) => void library.encode(text))) / 8,
  }),
);
