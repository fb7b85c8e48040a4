/**
 * The pre-tokenizer of a tokenizer.json as a function from text to pieces, for byte-level models.
 *
 * Supported: Split (Isolated or Removed), Digits, ByteLevel and Sequences of them; anything else throws
 * UnsupportedError. Pieces are plain text: the byte-level alphabet is the encoder's business.
 */
import { categoryRanges, escapeRegex, translateRegex, UnsupportedError } from "./regex.js";

/** GPT-2's pattern, which ByteLevel applies by itself. */
const BYTE_LEVEL_PATTERN =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/**
 * @param {object | null} spec the "pre_tokenizer" of a tokenizer.json
 * @returns {(text: string) => string[]}
 */
export function buildPretokenizer(spec) {
  const stages = [];
  const flatten = (part) =>
    part?.type === "Sequence" ? part.pretokenizers.forEach(flatten) : stages.push(part);
  flatten(spec);
  if (stages.at(-1)?.type !== "ByteLevel") {
    throw new UnsupportedError("the pre-tokenizer does not end in ByteLevel");
  }
  const splitters = stages.flatMap(stageSplitters);
  return (text) => {
    let pieces = [text];
    for (const split of splitters) {
      pieces = pieces.length === 1 ? split(pieces[0]) : pieces.flatMap(split);
    }
    return pieces;
  };
}

/** @returns {((text: string) => string[])[]} */
function stageSplitters(stage) {
  switch (stage?.type) {
    case "Split": {
      if (stage.invert) throw new UnsupportedError("inverted Split");
      const { Regex, String: text } = stage.pattern;
      const regex =
        Regex === undefined ? new RegExp(escapeRegex(text), "gu") : translateRegex(Regex);
      if (stage.behavior === "Isolated") return [(piece) => isolate(piece, regex)];
      if (stage.behavior === "Removed") return [(piece) => remove(piece, regex)];
      throw new UnsupportedError(`Split behaviour ${stage.behavior}`);
    }
    case "Digits": {
      const regex = new RegExp(
        `[${categoryRanges("N")}]${stage.individual_digits ? "" : "+"}`,
        "gu",
      );
      return [(piece) => isolate(piece, regex)];
    }
    case "ByteLevel": {
      const prefix = (piece) => [piece.startsWith(" ") ? piece : ` ${piece}`];
      if (stage.add_prefix_space && stage.use_regex === false) {
        throw new UnsupportedError("prefix space after another split");
      }
      const splitters = stage.add_prefix_space ? [prefix] : [];
      if (stage.use_regex !== false) {
        const regex = translateRegex(BYTE_LEVEL_PATTERN);
        splitters.push((piece) => isolate(piece, regex));
      }
      return splitters;
    }
    default:
      throw new UnsupportedError(`pre-tokenizer ${stage?.type}`);
  }
}

/** Every match a piece of its own, and what lies between matches too. */
function isolate(text, regex) {
  const matches = text.match(regex);
  if (matches === null) return text ? [text] : [];
  let total = 0;
  for (const match of matches) total += match.length;
  if (total === text.length) return matches;
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(regex)) {
    if (match.index > end) pieces.push(text.slice(end, match.index));
    if (match[0]) pieces.push(match[0]);
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push(text.slice(end));
  return pieces;
}

function remove(text, regex) {
  return text.split(regex).filter(Boolean);
}
