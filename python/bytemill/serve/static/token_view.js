// A scrolling view of tokens, of which only the rows in sight are in the document.

import { count, element, perFrame } from "./dom.js";
import { TokenLayout } from "./token_layout.js";
import { hex, visible } from "./visible.js";

const ROW = 28; // as in the style sheet
const MARGIN = 8; // rows kept above and below those in sight
const N_COLORS = 5;
let views = 0;

export class TokenView {
  /** `onPick(i)` and `onScroll()` are called for what the reader does. */
  constructor({ label, onPick, onScroll = () => {} }) {
    this.rows = element("div", { class: "rows", role: "none" });
    this.node = element(
      "div",
      { class: "tokens", tabindex: "0", role: "listbox", "aria-label": label },
      this.rows,
    );
    this.name = `tokens-${++views}`;
    this.found = null;
    this.flags = null;
    this.current = -1;
    this.options = { spaces: true, ids: false };
    this.onPick = onPick;
    this.onScroll = onScroll;
    this.drawn = new Map(); // row number → element
    const drawScrolled = perFrame(() => this.render({ keep: true }));
    this.node.addEventListener("scroll", () => {
      drawScrolled();
      this.onScroll();
    });
    this.node.addEventListener("click", (event) => this.clicked(event));
    this.node.addEventListener("keydown", (event) => this.pressed(event));
    this.node.addEventListener("pointerover", (event) => this.pointed(event));
    this.node.addEventListener("pointerleave", hideHint);
    this.node.addEventListener("blur", hideHint);
    this.resized = new ResizeObserver(perFrame(() => this.arrange()));
    this.resized.observe(this.node);
  }

  remove() {
    this.resized.disconnect();
    this.node.remove();
  }

  /** Shows a tokenization; `flags` marks tokens that others do not have. */
  show(found, flags, options) {
    const isSame = found === this.found;
    const { ids, spaces } = this.options;
    const keep = isSame && options.ids === ids && options.spaces === spaces;
    // Where the reader is in the text stays in sight when only its looks change.
    const at = isSame && this.layout ? this.firstByte : null;
    this.flags = flags;
    this.options = options;
    if (found !== this.found && this.current >= (found?.length ?? 0)) this.current = -1;
    this.found = found;
    if (keep) this.render();
    else this.arrange(true, at);
  }

  arrange(always = false, at = null) {
    if (!this.found || !this.node.isConnected) return;
    this.layout ??= new TokenLayout(...fonts(this.node));
    const style = getComputedStyle(this.node);
    const room = this.node.clientWidth - parseFloat(style.paddingLeft) * 2;
    const width = Math.max(40, Math.floor(room) - 1);
    if (!always && width === this.layout.rowWidth) {
      this.render({ keep: true });
      return;
    }
    if (!always && this.layout.length) at = this.firstByte;
    this.layout.arrange(this.found, width, this.options);
    this.rows.style.height = `${this.layout.length * ROW}px`;
    if (at !== null) this.scrollToByte(at);
    this.render();
  }

  /** Draws the rows in sight; while scrolling, those that are there are kept. */
  render({ keep = false } = {}) {
    if (!this.found || !this.layout) return;
    const { scrollTop, clientHeight } = this.node;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - MARGIN);
    const end = Math.min(this.layout.length, Math.ceil((scrollTop + clientHeight) / ROW) + MARGIN);
    if (!keep) this.drawn.clear();
    for (const [number, row] of this.drawn) {
      if (number >= first && number < end) continue;
      row.remove();
      this.drawn.delete(number);
    }
    // Kept rows are contiguous: new ones come before them or after.
    const lowest = Math.min(...this.drawn.keys());
    const [above, below] = [[], []];
    for (let number = first; number < end; number++) {
      if (this.drawn.has(number)) continue;
      const row = element("div", { class: "row", role: "none" });
      row.style.top = `${number * ROW}px`;
      for (const part of this.layout.row(this.found, number)) row.append(this.part(part));
      this.drawn.set(number, row);
      (number < lowest ? above : below).push(row);
    }
    if (keep) {
      this.rows.prepend(...above);
      this.rows.append(...below);
    } else {
      this.rows.replaceChildren(...above);
    }
    const isShown = this.current >= 0 && this.rows.querySelector(".current");
    if (isShown) this.node.setAttribute("aria-activedescendant", `${this.name}-current`);
    else this.node.removeAttribute("aria-activedescendant");
  }

  part({ token, first, text, id }) {
    const { found } = this;
    const isCurrent = token === this.current;
    const classes = [found.isSpecial(token) ? "special" : `c${token % N_COLORS}`];
    if (this.flags?.[token]) classes.push("differs");
    if (isCurrent) classes.push("current");
    const span = element("span", {
      class: classes.join(" "),
      role: "option",
      "data-i": token,
      "aria-selected": isCurrent ? "true" : "false",
      id: isCurrent && first ? `${this.name}-current` : null,
    });
    span.textContent = text;
    if (id !== undefined) span.append(element("small", {}, id));
    return span;
  }

  // --- events -----------------------------------------------------------------------------------

  clicked(event) {
    const span = event.target.closest("[data-i]");
    if (span) this.choose(Number(span.dataset.i));
  }

  choose(i, { pick = true } = {}) {
    this.current = i;
    this.reveal(i);
    this.render();
    if (pick) this.onPick(i);
  }

  pressed(event) {
    const { found } = this;
    if (!found?.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const i = this.current;
    const last = found.length - 1;
    const moves = {
      ArrowRight: () => Math.min(last, i + 1),
      ArrowLeft: () => Math.max(0, i - 1),
      ArrowDown: () => this.nextRow(1),
      ArrowUp: () => this.nextRow(-1),
      Home: () => 0,
      End: () => last,
    };
    if (event.key in moves) {
      this.choose(moves[event.key](), { pick: false });
      const span = this.rows.querySelector(".current");
      if (span) this.hint(span);
    } else if (event.key === "Enter" || event.key === " ") {
      if (i >= 0) this.choose(i);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** The first token that starts in the next row of tokens, or the one before. */
  nextRow(by) {
    if (this.current < 0) return 0;
    const row = this.layout.rowOf(this.current) + by;
    if (row < 0) return 0;
    if (row >= this.layout.length) return this.found.length - 1;
    const first = this.layout.tokens[row] + (this.layout.firstParts[row] ? 1 : 0);
    return Math.min(first, this.found.length - 1);
  }

  reveal(i) {
    const top = this.layout.rowOf(i) * ROW;
    const { scrollTop, clientHeight } = this.node;
    if (top < scrollTop) this.node.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.node.scrollTop = top + ROW - clientHeight + 8;
  }

  /** The first byte in sight. */
  get firstByte() {
    if (!this.layout?.length) return 0;
    const row = Math.min(this.layout.length - 1, Math.floor(this.node.scrollTop / ROW));
    return this.found.start(this.layout.tokens[row]);
  }

  scrollToByte(at) {
    if (!this.layout?.length) return;
    this.node.scrollTop = this.layout.rowOf(this.found.at(at)) * ROW;
  }

  // --- the hint -----------------------------------------------------------------------------------

  pointed(event) {
    const span = event.target.closest("[data-i]");
    if (span) this.hint(span);
    else hideHint();
  }

  hint(span) {
    const i = Number(span.dataset.i);
    const { found } = this;
    const token = found.token(i);
    const box = hintBox();
    const shown = token.length > 24 ? `${hex(token.subarray(0, 24))} …` : hex(token);
    box.replaceChildren(
      element("strong", {}, `id ${found.ids[i]}`),
      element("code", {}, visible(token).slice(0, 60)),
      element("span", {}, `${token.length === 1 ? "1 byte" : `${token.length} bytes`}: ${shown}`),
      element("span", { class: "dim" }, `token ${count(i + 1)} of ${count(found.length)}`),
    );
    box.hidden = false;
    const at = span.getBoundingClientRect();
    const left = Math.min(at.left, document.documentElement.clientWidth - box.offsetWidth - 8);
    const below = at.bottom + 6 + box.offsetHeight < window.innerHeight;
    box.style.left = `${Math.max(8, left)}px`;
    box.style.top = `${below ? at.bottom + 6 : at.top - box.offsetHeight - 6}px`;
  }
}

function hintBox() {
  let box = document.getElementById("hint");
  if (!box) {
    box = element("div", { id: "hint", role: "tooltip" });
    document.body.append(box);
  }
  return box;
}

function hideHint() {
  hintBox().hidden = true;
}

/** The fonts of tokens and of ids. */
function fonts(node) {
  const id = element("small", {}, "0");
  const probe = element("div", { class: "row" }, element("span", {}, id));
  node.append(probe);
  // The shorthand is empty where ligatures are off.
  const found = [node, id].map((one) => {
    const { fontSize, fontFamily } = getComputedStyle(one);
    return `${fontSize} ${fontFamily}`;
  });
  probe.remove();
  return found;
}
