/**
 * Translate the regular expressions of a tokenizer.json (Oniguruma, Ruby syntax) to JavaScript's.
 *
 * Unicode classes become explicit ranges of a pinned Unicode version (unicode_categories.js), so that
 * every browser splits alike. Possessive and atomic parts become a look-ahead with a back reference.
 * What has no exact translation throws UnsupportedError; the caller then uses another tokenizer.
 */
import { CATEGORIES, RUNS } from "./unicode_categories.js";

export class UnsupportedError extends Error {}

const WHITE_SPACE =
  "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SIMPLE_ESCAPES = "tnrfv";
/** Letters outside ASCII that case folding joins to an ASCII letter. */
const FOLDS = { s: "\u017f", k: "\u212a" };

/** @type {Map<string, string>} */
const classCache = new Map();

/** The members of general categories (a two-letter name, or a first letter) as class ranges. */
export function categoryRanges(name) {
  let ranges = classCache.get(name);
  if (ranges === undefined) {
    ranges = "";
    let start = 0;
    let from = -1;
    for (const [, code, length] of RUNS.matchAll(/([A-Z!#$%])([0-9a-z]*)/g)) {
      const index = code >= "A" ? code.charCodeAt(0) - 65 : 26 + "!#$%".indexOf(code);
      const inside = CATEGORIES[index].startsWith(name);
      if (inside && from < 0) from = start;
      if (!inside && from >= 0) {
        ranges += range(from, start - 1);
        from = -1;
      }
      start += length ? Number.parseInt(length, 36) : 1;
    }
    if (from >= 0) ranges += range(from, start - 1);
    if (!ranges) throw new UnsupportedError(`unknown Unicode property ${name}`);
    classCache.set(name, ranges);
  }
  return ranges;
}

function range(from, to) {
  const hex = (c) => `\\u{${c.toString(16)}}`;
  return from === to ? hex(from) : `${hex(from)}-${hex(to)}`;
}

/** @param {string} source Oniguruma pattern @returns {RegExp} with flags g and u */
export function translateRegex(source) {
  const parser = new Parser(source);
  const pattern = parser.alternatives(false);
  if (parser.at < parser.source.length) throw new UnsupportedError("unbalanced parenthesis");
  return new RegExp(pattern, "gu");
}

/** The pattern that matches just this text. */
export function escapeRegex(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

class Parser {
  constructor(source) {
    this.source = source;
    this.at = 0;
    this.atoms = 0;
  }

  peek(text) {
    return this.source.startsWith(text, this.at);
  }

  take(text) {
    if (!this.peek(text)) return false;
    this.at += text.length;
    return true;
  }

  alternatives(fold) {
    let out = "";
    while (this.at < this.source.length && !this.peek(")")) {
      out += this.take("|") ? "|" : this.quantified(fold);
    }
    return out;
  }

  /** One atom with its quantifier; possessive forms are wrapped to match once and for all. */
  quantified(fold) {
    const atom = this.atom(fold);
    const match = /^(?:[*+?]|\{\d*(?:,\d*)?\})/.exec(this.source.slice(this.at));
    if (!match) return atom;
    let [quantifier] = match;
    this.at += quantifier.length;
    if (quantifier === "{}" || quantifier === "{,}") throw new UnsupportedError("empty interval");
    if (quantifier.startsWith("{,")) quantifier = `{0${quantifier.slice(1)}`;
    if (this.take("?")) return `${atom}${quantifier}?`;
    if (this.take("+")) {
      if (quantifier.startsWith("{")) return `(?:${atom}${quantifier})+`;
      return this.atomic(`${atom}${quantifier}`);
    }
    return atom + quantifier;
  }

  atomic(body) {
    const name = `atomic${this.atoms++}`;
    return `(?=(?<${name}>${body}))\\k<${name}>`;
  }

  atom(fold) {
    if (this.take("(")) return this.group(fold);
    if (this.take("[")) return this.characterClass(fold);
    if (this.take("\\")) return this.escape(false, fold);
    if (this.take(".")) return "[^\\n]";
    const character = String.fromCodePoint(this.source.codePointAt(this.at));
    this.at += character.length;
    if ("^$*+?".includes(character)) throw new UnsupportedError(`${character} at this place`);
    return literal(character, false, fold);
  }

  group(fold) {
    let wrap = (body) => `(?:${body})`;
    let inner = fold;
    if (this.take("?>")) wrap = (body) => this.atomic(body);
    else if (this.take("?i:")) inner = true;
    else if (this.take("?")) {
      const kind = ["<=", "<!", ":", "=", "!"].find((k) => this.take(k));
      if (!kind) throw new UnsupportedError("group option");
      wrap = (body) => `(?${kind}${body})`;
    }
    const body = this.alternatives(inner);
    if (!this.take(")")) throw new UnsupportedError("unbalanced parenthesis");
    return wrap(body);
  }

  characterClass(fold) {
    let out = this.take("^") ? "[^" : "[";
    for (let first = true; first || !this.peek("]"); first = false) {
      if (this.at >= this.source.length) throw new UnsupportedError("unbalanced bracket");
      if (this.peek("[") || this.peek("&&")) throw new UnsupportedError("nested class");
      if (this.take("\\")) {
        out += this.escape(true, fold);
      } else {
        const character = String.fromCodePoint(this.source.codePointAt(this.at));
        this.at += character.length;
        const dash = character === "-" && !first && !this.peek("]");
        if (dash && fold) throw new UnsupportedError("range without case");
        out += dash ? "-" : literal(character, true, fold);
      }
    }
    this.at += 1;
    return `${out}]`;
  }

  /** What follows a backslash, inside or outside a class. */
  escape(inClass, fold) {
    const character = String.fromCodePoint(this.source.codePointAt(this.at) ?? 0x5c);
    this.at += character.length;
    const wrap = (ranges, negated) => {
      if (!inClass) return `[${negated ? "^" : ""}${ranges}]`;
      if (negated) throw new UnsupportedError("negated class in a class");
      return ranges;
    };
    switch (character) {
      case "s":
      case "S":
        return wrap(WHITE_SPACE, character === "S");
      case "d":
      case "D":
        return wrap(categoryRanges("Nd"), character === "D");
      case "w":
      case "W":
        return wrap(["L", "M", "Nd", "Pc"].map(categoryRanges).join(""), character === "W");
      case "p":
      case "P": {
        const match = /^\{(\^?)([A-Z][a-z]?)\}/.exec(this.source.slice(this.at));
        if (!match) throw new UnsupportedError("Unicode property that is no general category");
        this.at += match[0].length;
        return wrap(categoryRanges(match[2]), (character === "P") !== (match[1] === "^"));
      }
      case "u":
      case "x": {
        const match =
          character === "u"
            ? /^([0-9a-fA-F]{4})/.exec(this.source.slice(this.at))
            : /^(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}))/.exec(this.source.slice(this.at));
        if (!match) throw new UnsupportedError("malformed escape");
        this.at += match[0].length;
        return `\\u{${match[1] ?? match[2]}}`;
      }
      default:
        if (SIMPLE_ESCAPES.includes(character)) return `\\${character}`;
        if (/[A-Za-z0-9]/.test(character)) throw new UnsupportedError(`\\${character}`);
        return literal(character, inClass, fold);
    }
  }
}

/** One character that stands for itself, in both cases where folding is on. */
function literal(character, inClass, fold) {
  const escaped = /[\\^$.*+?()[\]{}|/-]/.test(character)
    ? `\\u{${character.codePointAt(0).toString(16)}}`
    : character;
  if (!fold || character.toLowerCase() === character.toUpperCase()) return escaped;
  if (character > "\u007f") throw new UnsupportedError("case folding outside ASCII");
  const lower = character.toLowerCase();
  const all = lower + lower.toUpperCase() + (FOLDS[lower] ?? "");
  return inClass ? all : `[${all}]`;
}
