// The kit's choice of tokens for the logits on stdin: {mantissas, exponent, samplings, draws}.
import { readFileSync } from "node:fs";
import { choose } from "../../app/js/kit/sampling.js";

const { mantissas, exponent, samplings, draws } = JSON.parse(readFileSync(0, "utf8"));
const logits = Int32Array.from(mantissas);
const choices = samplings.map((sampling) =>
  Array.from({ length: draws }, (_, number) => choose(logits, exponent, sampling, number)),
);
process.stdout.write(JSON.stringify(choices));
