// Rows of a token view. Every row has the same height and the width of every token is known, so
// that only the rows in sight need elements, and scrolling is exact in a text of any length.
//
// Widths are measured once per token of the vocabulary. A layout of n tokens then is n additions:
// tens of milliseconds for a megabyte of text.

import { visible } from "./visible.js";

// Right of an id, in pixels; the style sheet has the same.
const ID_GAP = 6;

export class TokenLayout {
  /** `font` and `idFont` as CSS fonts. */
  constructor(font, idFont) {
    const context = document.createElement("canvas").getContext("2d");
    this.width = (text, chosen) => {
      context.font = chosen;
      return context.measureText(text).width;
    };
    this.font = font;
    this.idFont = idFont;
    this.column = this.width("x", font);
    this.digit = this.width("0", idFont);
    this.parts = new Map();
    this.options = {};
    this.clear();
  }

  clear() {
    this.tokens = [];
    this.firstParts = [];
  }

  get length() {
    return this.tokens.length;
  }

  /** Lays out a tokenization in rows of `width` pixels. */
  arrange(found, width, options) {
    const { spaces, ids } = options;
    // Ids mean other tokens in another tokenizer.
    const key = JSON.stringify([width, spaces, ids, found.tokenizer]);
    if (key !== this.key) this.parts.clear();
    Object.assign(this, { key, rowWidth: width, options });
    this.clear();
    let x = 0;
    const startRow = (token, part) => {
      this.tokens.push(token);
      this.firstParts.push(part);
      x = 0;
    };
    if (found.length) startRow(0, 0);
    for (let i = 0; i < found.length; i++) {
      const parts = this.partsOf(found, i);
      for (let p = 0; p < parts.length; p++) {
        const part = parts[p];
        if (x > 0 && x + part.width > width) startRow(i, p);
        x += part.width;
        if (!part.endsRow) continue;
        if (p + 1 < parts.length) startRow(i, p + 1);
        else if (i + 1 < found.length) startRow(i + 1, 0);
      }
    }
  }

  /** The token `i` in parts that fit into a row: cut after each newline, and where too long. */
  partsOf(found, i) {
    const id = found.ids[i];
    let parts = this.parts.get(id);
    if (parts === undefined) {
      parts = this.cut(visible(found.token(i), this.options));
      if (this.options.ids) {
        const last = parts[parts.length - 1];
        last.id = String(id);
        last.width += last.id.length * this.digit + ID_GAP;
      }
      this.parts.set(id, parts);
    }
    return parts;
  }

  cut(signs) {
    const parts = [];
    const lines = signs.split(/(?<=↵)/);
    for (const line of lines.length ? lines : [""]) {
      let [text, width] = ["", 0];
      for (const char of line) {
        const wide = this.widthOf(char);
        if (width && width + wide > this.rowWidth) {
          parts.push({ text, width, endsRow: false });
          [text, width] = ["", 0];
        }
        text += char;
        width += wide;
      }
      // In some scripts, a word is narrower than the sum of its letters.
      const isPlain = /^[ -~·↵]*$/.test(text);
      if (!isPlain) width = this.width(text, this.font);
      parts.push({ text, width, endsRow: line.endsWith("↵") });
    }
    return parts;
  }

  widthOf(char) {
    return char >= " " && char <= "~" ? this.column : this.width(char, this.font);
  }

  /** The parts of a row, each with its token. */
  *row(found, number) {
    let [token, part] = [this.tokens[number], this.firstParts[number]];
    const isLast = number + 1 === this.length;
    const [endToken, endPart] = isLast
      ? [found.length, 0]
      : [this.tokens[number + 1], this.firstParts[number + 1]];
    for (; token < endToken || (token === endToken && part < endPart); part++) {
      const parts = this.partsOf(found, token);
      if (part < parts.length) yield { token, first: part === 0, ...parts[part] };
      else [token, part] = [token + 1, -1];
    }
  }

  /** The row in which token `i` starts. */
  rowOf(i) {
    let [low, high] = [0, this.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const before = this.tokens[middle] < i;
      const starts = this.tokens[middle] === i && this.firstParts[middle] === 0;
      if (before || starts) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
