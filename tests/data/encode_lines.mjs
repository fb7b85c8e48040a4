// Encode lines with the page's tokenizer under Node: {spec, lines, plain} in, {kind, ids, ...} out.
import { readFileSync } from "node:fs";
import { buildTokenizer } from "../../app/js/data/library_tokenizer.js";

const { spec, lines, plain } = JSON.parse(readFileSync(0, "utf8"));
const tokenizer = buildTokenizer(spec);
const { bytes, ends } = tokenizer.tokenBytes();
process.stdout.write(
  JSON.stringify({
    kind: tokenizer.constructor.name,
    ids: lines.map((line) => tokenizer.encode(line, plain)),
    bytes: Buffer.from(bytes).toString("base64"),
    ends: [...ends],
  }),
);
