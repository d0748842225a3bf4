// The Tokens page: a text, and its tokens by one or several tokenizers.

import { get, isAbort, post } from "./api.js";
import { byId, copy, count, debounced, element, failure, notice, plural, showNotes } from "./dom.js";
import * as fragment from "./fragment.js";
import { TokenCard } from "./token_card.js";
import { TokenView } from "./token_view.js";
import { Tokenization, differences, utf8 } from "./tokenization.js";
import { Vocabulary } from "./vocabulary.js";

const MAX_BYTES = 4_000_000;
const MAX_COLUMNS = 4;
const EXAMPLES = {
  English: "The mill grinds words into tokens.\nIt doesn't mind  spaces, or 12,345 numbers.\n",
  Code: "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)\n",
  Scripts: "Grüße, мир! 你好，世界 — नमस्ते दुनिया, こんにちは 👋🏽\n",
};

const text = byId("text");
const columns = byId("columns");
let catalog = [];
let shown = []; // the columns
let selected = null; // {tokenizer, id}: the token in the card
let input = { text: "", bytes: utf8("") };

const card = new TokenCard(byId("card"), (tokenizer, id) => pick(tokenizer, id));
const vocabulary = new Vocabulary(byId("vocabulary"), {
  onPick: (tokenizer, id) => pick(tokenizer, id),
  onChange: () => store(),
});

// --- a column: one tokenizer ---------------------------------------------------------------------

class Column {
  constructor(id) {
    this.id = id;
    this.key = null; // what was asked for last
    this.found = null;
    this.chosen = element(
      "select",
      { "aria-label": "Tokenizer", onchange: () => this.change(this.chosen.value) },
      catalog.map((one) => element("option", { value: one.id }, one.name)),
    );
    this.chosen.value = id;
    this.facts = element("p", { class: "facts" });
    this.differing = element("span", { class: "differing" });
    this.next = element(
      "button",
      { class: "quiet", type: "button", onclick: () => this.toNextDifference() },
      "Next difference",
    );
    this.close = element(
      "button",
      {
        class: "quiet",
        type: "button",
        title: "Remove this tokenizer",
        "aria-label": "Remove this tokenizer",
        onclick: () => removeColumn(this),
      },
      "✕",
    );
    this.message = element("div", { class: "message", hidden: true });
    this.view = new TokenView({
      label: "Tokens: arrow keys move, Enter shows a token",
      onPick: (i) => pick(this.id, this.found.ids[i]),
      onScroll: () => scrolled(this),
    });
    this.node = element(
      "section",
      { class: "column" },
      element("div", { class: "bar" }, this.chosen, element("span", { class: "space" }), this.close),
      this.facts,
      element("div", { class: "bar difference" }, this.differing, this.next),
      this.message,
      this.view.node,
    );
  }

  get entry() {
    return catalog.find((one) => one.id === this.id);
  }

  change(id) {
    this.id = id;
    vocabulary.offer(shown.map((one) => one.entry));
    this.update();
    store();
  }

  /** Asks for the tokens, unless the answer is here or under way. */
  async update() {
    const special = byId("special").checked ? "all" : "none";
    const key = JSON.stringify([this.id, special, input.text.length > 1e5 ? input.number : input.text]);
    if (key === this.key) return;
    this.key = key;
    this.request?.abort();
    const { bytes } = input;
    if (!bytes.length) return this.present(null);
    if (bytes.length > MAX_BYTES) {
      const problem = `The text has ${count(bytes.length)} bytes.`;
      return this.present(null, notice(problem, `At most ${count(MAX_BYTES)} are shown.`, { error: true }));
    }
    this.request = new AbortController();
    const { signal } = this.request;
    this.node.classList.add("busy");
    try {
      const body = { tokenizer: this.id, text: input.text, special };
      const { ids, ends } = await post("/api/tokenize", body, { signal });
      const specials = new Set(special === "all" ? this.entry.special_tokens : []);
      const { fingerprint } = this.entry;
      const arrays = [new Uint32Array(ids), new Uint32Array(ends)];
      this.present(new Tokenization(fingerprint, bytes, ...arrays, specials));
    } catch (error) {
      if (isAbort(error)) return undefined;
      this.key = null;
      this.present(null, failure(error));
    }
    return undefined;
  }

  present(found, message = null) {
    this.node.classList.remove("busy");
    this.found = found;
    this.message.hidden = !message;
    this.message.replaceChildren(...(message ? [message] : []));
    compare();
  }

  show(flags) {
    const { found } = this;
    this.view.node.hidden = !found;
    this.facts.hidden = !found;
    const options = { spaces: byId("spaces").checked, ids: byId("ids").checked };
    if (found) this.view.show(found, flags, options);
    const n = found?.length ?? 0;
    const size = found?.bytes.length ?? 0;
    this.facts.replaceChildren(
      fact(count(n), n === 1 ? "token" : "tokens"),
      fact(count(size), size === 1 ? "byte" : "bytes"),
      fact(n ? (size / n).toFixed(2) : "–", "bytes per token"),
      fact(count(this.entry.vocab_size), "in the vocabulary"),
    );
    const differing = flags ? flags.reduce((sum, flag) => sum + flag, 0) : 0;
    this.differing.textContent = flags
      ? differing
        ? `${plural(differing, "token")} cut differently`
        : "no differences"
      : "";
    this.next.hidden = !differing;
    this.close.hidden = shown.length < 2;
    // Narrow columns cut the name.
    this.chosen.title = this.entry.name;
    this.flags = flags;
  }

  toNextDifference() {
    const { view, flags } = this;
    let i = flags.indexOf(1, view.current + 1);
    if (i < 0) i = flags.indexOf(1);
    view.choose(i, { pick: false });
    view.node.focus();
  }
}

const fact = (number, unit) => element("span", {}, element("b", {}, number), ` ${unit}`);

/** Marks what differs between the columns, and draws them. */
function compare() {
  const ready = shown.filter((one) => one.found && one.found.bytes === input.bytes);
  const flags = ready.length > 1 ? differences(ready.map((one) => one.found)) : [];
  for (const column of shown) column.show(flags[ready.indexOf(column)] ?? null);
}

let leader = null; // the column that the reader scrolls; the others follow
let release = 0;

function scrolled(column) {
  if (shown.length < 2 || (leader && leader !== column)) return;
  leader = column;
  clearTimeout(release);
  release = setTimeout(() => {
    leader = null;
  }, 150);
  const at = column.view.firstByte;
  for (const other of shown) {
    if (other !== column && other.found) other.view.scrollToByte(at);
  }
}

function addColumn(id) {
  const column = new Column(id);
  shown.push(column);
  columns.append(column.node);
  return column;
}

function removeColumn(column) {
  column.request?.abort();
  column.view.remove();
  column.node.remove();
  shown = shown.filter((one) => one !== column);
  settle();
}

/** To be called when columns were added or removed. */
function settle() {
  columns.style.setProperty("--columns", shown.length);
  byId("add").hidden = catalog.length < 2 || shown.length >= MAX_COLUMNS;
  vocabulary.offer(shown.map((one) => one.entry));
  compare();
  store();
}

function pick(tokenizer, id) {
  selected = { tokenizer, id };
  vocabulary.choose(tokenizer);
  card.show(catalog.find((one) => one.id === tokenizer), id);
  store();
}

// --- input ----------------------------------------------------------------------------------------

function readInput() {
  // As the server reads it: half of a surrogate pair is not a character.
  const found = text.value.isWellFormed?.() === false ? text.value.toWellFormed() : text.value;
  input = { text: found, bytes: utf8(found), number: (input.number ?? 0) + 1 };
  byId("examples").hidden = found !== "";
  byId("size").textContent = found ? plural(found.length, "character") : "";
}

function update() {
  if (text.value !== input.text) readInput();
  for (const column of shown) column.update();
  store();
}

const updateSoon = debounced(update, () => (text.value.length > 50_000 ? 400 : 60));
const store = debounced(storeNow, () => 200);

function storeNow() {
  fragment.write({
    t: shown.map((one) => one.id).join(","),
    text: fragment.shareable(input.text),
    special: byId("special").checked ? null : "none",
    spaces: byId("spaces").checked ? null : "plain",
    ids: byId("ids").checked,
    token: selected && `${selected.tokenizer}:${selected.id}`,
    ...vocabulary.state,
  });
}

function restore() {
  const state = fragment.read();
  if (state.text !== undefined && state.text !== text.value) text.value = state.text;
  byId("special").checked = state.special !== "none";
  byId("spaces").checked = state.spaces !== "plain";
  byId("ids").checked = state.ids === "1";
  const known = (id) => catalog.some((one) => one.id === id);
  const wanted = (state.t ?? "").split(",").filter(known).slice(0, MAX_COLUMNS);
  const chosen = wanted.length ? wanted : [catalog[0].id];
  if (chosen.join() !== shown.map((one) => one.id).join()) {
    for (const column of shown) column.view.remove();
    shown = [];
    columns.replaceChildren();
    for (const id of chosen) addColumn(id);
  }
  const [tokenizer, id] = (state.token ?? "").split(/:(?=\d+$)/);
  selected = known(tokenizer) && id ? { tokenizer, id: Number(id) } : null;
  settle();
  vocabulary.restore(state);
  if (selected) pick(selected.tokenizer, selected.id);
  else card.clear();
  update();
}

// --- start ----------------------------------------------------------------------------------------

async function start() {
  try {
    const found = await get("/api/catalog");
    showNotes(found.notes);
    catalog = found.tokenizers;
  } catch (error) {
    columns.replaceChildren(failure(error));
    return;
  }
  if (!catalog.length) {
    byId("editor").classList.add("useless");
    byId("side").hidden = true;
    const hint = "Train one on any text, then serve it:";
    const code = "bytemill train-tokenizer corpus.txt -o tokenizer.json\nbytemill serve tokenizer.json";
    columns.replaceChildren(notice("No tokenizer was found.", hint, { code }));
    return;
  }
  byId("editor").classList.remove("useless");
  byId("side").hidden = false;
  columns.replaceChildren();
  restore();
}

text.addEventListener("input", () => {
  byId("examples").hidden = text.value !== "";
  updateSoon();
});
byId("special").addEventListener("change", update);
for (const id of ["spaces", "ids"]) {
  byId(id).addEventListener("change", () => {
    compare();
    store();
  });
}
byId("add").addEventListener("click", () => {
  const unused = catalog.find((one) => !shown.some((column) => column.id === one.id));
  addColumn((unused ?? catalog[0]).id).update();
  settle();
});
byId("share").addEventListener("click", () => {
  storeNow();
  copy(byId("share"), location.href);
});
text.after(
  element(
    "p",
    { id: "examples", class: "examples" },
    "Or take an example: ",
    Object.entries(EXAMPLES).map(([name, example]) => {
      const onclick = () => {
        text.value = example;
        text.focus();
        update();
      };
      return element("button", { class: "link", type: "button", onclick }, name);
    }),
  ),
);
fragment.onChange(restore);
document.addEventListener("server-back", () => (catalog.length ? update() : start()));
start();
