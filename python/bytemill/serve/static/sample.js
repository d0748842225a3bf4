// A text that a model writes: its tokens, each shaded by its probability, and their alternatives.

import { copy, element, perFrame, plural } from "./dom.js";
import { fromHex, hex, visible } from "./visible.js";

// A token of 10 bits (p < 0.001) has the full shade.
const MAX_BITS = 10;
let samples = 0;

export class Sample {
  /** `actions` are called by what the reader does: continue, edit, choose (another token). */
  constructor(title, actions) {
    this.name = `sample-${++samples}`;
    this.tokens = []; // {id, hex, text, p, top}; p is null for those of the prompt
    this.drawn = 0;
    this.current = -1;
    this.text = element("div", {
      class: "text",
      tabindex: "0",
      role: "listbox",
      "aria-label": `${title}: arrow keys move, Enter shows alternatives`,
    });
    this.status = element("span", { class: "dim", role: "status" });
    this.more = button("Continue", () => actions.continue(this));
    this.edit = button("Edit", () => actions.edit(this));
    this.copy = button("Copy", () => copy(this.copy, this.plainText));
    this.message = element("div");
    this.node = element(
      "section",
      { class: "sample" },
      element("h3", {}, title),
      this.text,
      this.message,
      element(
        "div",
        { class: "bar" },
        this.status,
        element("span", { class: "actions" }, this.more, this.edit, this.copy),
      ),
    );
    this.onChoose = (i, token) => actions.choose(this, i, token);
    this.draw = perFrame(() => this.render());
    this.text.addEventListener("click", (event) => {
      const span = event.target.closest("[data-i]");
      if (span) this.select(Number(span.dataset.i), true);
    });
    this.text.addEventListener("keydown", (event) => this.pressed(event));
    this.setBusy(true);
  }

  get ids() {
    return this.tokens.map((token) => token.id);
  }

  get plainText() {
    return new TextDecoder().decode(fromHex(this.tokens.map((token) => token.hex).join("")));
  }

  add(tokens) {
    this.tokens.push(...tokens);
    this.draw();
  }

  /** Keeps the first `n` tokens. */
  cut(n) {
    this.tokens.length = n;
    this.drawn = Math.min(this.drawn, n);
    while (this.text.children.length > this.drawn) this.text.lastChild.remove();
    this.current = -1;
  }

  setBusy(busy) {
    this.busy = busy;
    this.node.classList.toggle("writing", busy);
    // Without a token there is nothing to continue, and Edit would clear the prompt.
    for (const one of [this.more, this.edit, this.copy]) one.disabled = busy || !this.tokens.length;
  }

  /** Ends with a reason, or an element that explains what went wrong. */
  end(reason, problem = null) {
    this.setBusy(false);
    this.render();
    const bits = this.tokens.filter((one) => one.p).map((one) => -Math.log2(one.p));
    const mean = bits.reduce((sum, one) => sum + one, 0) / bits.length;
    const facts = [reason];
    if (bits.length) facts.push(plural(bits.length, "token"), `${mean.toFixed(2)} bits per token`);
    this.status.textContent = facts.filter(Boolean).join(" · ");
    this.message.replaceChildren(...(problem ? [problem] : []));
  }

  restart() {
    this.setBusy(true);
    this.status.textContent = "";
    this.message.replaceChildren();
    closeMenu();
  }

  // --- drawing ------------------------------------------------------------------------------------

  render() {
    const atEnd = this.text.scrollTop + this.text.clientHeight > this.text.scrollHeight - 40;
    const added = [];
    for (; this.drawn < this.tokens.length; this.drawn++) added.push(this.span(this.drawn));
    this.text.append(...added);
    if (atEnd && this.busy) this.text.scrollTop = this.text.scrollHeight;
  }

  span(i) {
    const token = this.tokens[i];
    const made = element("span", {
      id: `${this.name}-${i}`,
      role: "option",
      "aria-selected": "false",
      "data-i": i,
    });
    if (token.p === null) {
      made.className = "prompt";
    } else {
      const bits = Math.min(MAX_BITS, -Math.log2(Math.max(token.p, 1e-9)));
      made.style.setProperty("--surprise", `${(bits / MAX_BITS) * 100}%`);
      made.title = `${percent(token.p)}, id ${token.id}`;
      if (token.chosen) made.className = "chosen";
    }
    if (token.text) made.append(...lines(token.text));
    else made.append(element("small", {}, "‹" + hex(fromHex(token.hex)) + "›"));
    return made;
  }

  // --- alternatives -------------------------------------------------------------------------------

  select(i, open) {
    this.text.querySelector(".current")?.classList.remove("current");
    this.current = i;
    const span = this.text.querySelector(`[data-i="${i}"]`);
    span.classList.add("current");
    span.scrollIntoView({ block: "nearest" });
    this.text.setAttribute("aria-activedescendant", span.id);
    if (open) this.openMenu(i, span);
    else closeMenu();
  }

  pressed(event) {
    const last = this.tokens.length - 1;
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const i = this.current;
    if (event.key === "ArrowRight") this.select(Math.min(last, i + 1), false);
    else if (event.key === "ArrowLeft") this.select(Math.max(0, i - 1), false);
    else if ((event.key === "Enter" || event.key === " ") && i >= 0) this.select(i, true);
    else return;
    event.preventDefault();
  }

  openMenu(i, span) {
    const token = this.tokens[i];
    const given = token.top ?? [];
    const tops = given.some((one) => one.id === token.id) || token.p === null ? given : [...given, token];
    const items = tops.map((one) => {
      const bar = element("i");
      bar.style.width = `${one.p * 100}%`;
      return element(
        "button",
        {
          type: "button",
          disabled: this.busy,
          "aria-current": one.id === token.id ? "true" : null,
          onclick: () => {
            closeMenu();
            this.text.focus({ preventScroll: true });
            this.onChoose(i, one);
          },
        },
        element("code", {}, visible(fromHex(one.hex)).slice(0, 30)),
        element("span", { class: "meter" }, bar),
        element("span", { class: "share" }, percent(one.p)),
      );
    });
    const about = token.p === null ? "A token of the prompt" : "Continue from another token";
    openMenu(span, [
      element("p", {}, element("b", {}, about)),
      element("p", { class: "dim" }, `id ${token.id}: ${hex(fromHex(token.hex)).slice(0, 60)}`),
      ...items,
    ], this.text);
  }
}

function button(label, onclick) {
  return element("button", { class: "quiet", type: "button", onclick }, label);
}

/** Text with a sign before each line end, so that it can be seen and clicked. */
function* lines(text) {
  const parts = text.split("\n");
  for (const [number, part] of parts.entries()) {
    yield part;
    if (number + 1 < parts.length) {
      yield element("small", { class: "return" }, "↵");
      yield "\n";
    }
  }
}

function percent(p) {
  if (p >= 0.0995) return `${(p * 100).toFixed(0)} %`;
  return p >= 0.001 ? `${(p * 100).toFixed(1)} %` : "< 0.1 %";
}

// --- the menu of alternatives: one at a time ------------------------------------------------------

let menu = null;
let opener = null;

function openMenu(span, children, focusAfter) {
  closeMenu();
  menu = element("div", { class: "menu", role: "dialog", "aria-label": "Alternatives" }, children);
  opener = focusAfter;
  document.body.append(menu);
  const at = span.getClientRects()[0];
  const left = Math.min(at.left, document.documentElement.clientWidth - menu.offsetWidth - 8);
  const fits = at.bottom + 6 + menu.offsetHeight < window.innerHeight;
  const top = fits ? at.bottom + 6 : Math.max(8, at.top - menu.offsetHeight - 6);
  menu.style.left = `${Math.max(8, left) + window.scrollX}px`;
  menu.style.top = `${top + window.scrollY}px`;
  (menu.querySelector("[aria-current]") ?? menu.querySelector("button"))?.focus({ preventScroll: true });
}

export function closeMenu() {
  menu?.remove();
  menu = null;
}

document.addEventListener("pointerdown", (event) => {
  if (menu && !menu.contains(event.target)) closeMenu();
});
document.addEventListener("keydown", (event) => {
  if (!menu) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") {
    event.stopPropagation();
    closeMenu();
    opener.focus();
  } else if (step) {
    const buttons = [...menu.querySelectorAll("button:not(:disabled)")];
    const next = buttons.indexOf(document.activeElement) + step;
    buttons[Math.max(0, Math.min(buttons.length - 1, next))]?.focus();
    event.preventDefault();
  }
}, true);
