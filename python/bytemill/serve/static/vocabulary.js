// Search in the vocabulary, and facts about it.

import { get, isAbort } from "./api.js";
import { count, debounced, element, failure, plural } from "./dom.js";
import { chip } from "./token_card.js";

const LIMIT = 60;
const MAX_LENGTH = 12;

export class Vocabulary {
  constructor(node, { onPick, onChange }) {
    this.onPick = onPick;
    this.onChange = onChange;
    this.entries = [];
    this.chosen = element("select", { "aria-label": "Vocabulary of", hidden: true });
    this.query = element("input", {
      type: "search",
      "aria-label": "Search the vocabulary",
      placeholder: "Search tokens",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.by = element(
      "select",
      { "aria-label": "Search by" },
      ["text", "hex", "id"].map((by) => element("option", { value: by }, by)),
    );
    this.results = element("div", { "aria-live": "polite" });
    node.replaceChildren(
      element("h2", {}, "Vocabulary"),
      this.chosen,
      element("div", { class: "bar search" }, this.query, this.by),
      this.results,
    );
    const later = debounced(() => this.update(), () => 150);
    this.query.addEventListener("input", later);
    for (const select of [this.by, this.chosen]) {
      select.addEventListener("change", () => this.update());
    }
  }

  /** The tokenizers to search. */
  offer(entries) {
    const before = this.chosen.value;
    this.entries = entries;
    const unique = [...new Map(entries.map((one) => [one.id, one])).values()];
    this.chosen.replaceChildren(
      ...unique.map((one) => element("option", { value: one.id }, one.name)),
    );
    if (unique.some((one) => one.id === before)) this.chosen.value = before;
    this.chosen.hidden = unique.length < 2;
    this.update();
  }

  choose(id) {
    if (this.chosen.value === id || !this.entries.some((one) => one.id === id)) return;
    this.chosen.value = id;
    this.update();
  }

  get state() {
    const by = this.query.value && this.by.value !== "text" ? this.by.value : null;
    return { q: this.query.value, by };
  }

  restore({ q = "", by = "text" }) {
    // What was typed before the page was ready stays.
    if (q || this.restored) this.query.value = q;
    this.restored = true;
    this.by.value = ["hex", "id"].includes(by) ? by : "text";
    this.update();
  }

  async update() {
    const id = this.chosen.value;
    if (!id) return;
    const q = this.query.value;
    const key = JSON.stringify([id, q, q && this.by.value]);
    if (key === this.key) return;
    this.key = key;
    this.onChange();
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    const path = `/api/tokenizers/${encodeURIComponent(id)}`;
    try {
      if (q === "") {
        this.showFacts(id, await get(path, { signal }));
      } else {
        const fields = new URLSearchParams({ q, by: this.by.value, limit: LIMIT });
        this.showFound(id, await get(`${path}/search?${fields}`, { signal }));
      }
    } catch (error) {
      if (isAbort(error)) return;
      this.key = null;
      this.results.replaceChildren(failure(error));
    }
  }

  showFound(id, { total, tokens }) {
    const more = total > tokens.length ? `, the first ${tokens.length} of them` : "";
    this.results.replaceChildren(
      element("p", { class: "dim" }, total ? `${plural(total, "token")}${more}` : "No token matches."),
      element(
        "p",
        { class: "chips" },
        tokens.map((one) => chip(one, () => this.onPick(id, one.id))),
      ),
    );
  }

  showFacts(id, facts) {
    const rows = [
      ["tokens", count(facts.vocab_size)],
      ["merges", count(facts.n_merges)],
      ["pattern", facts.pattern],
      ["mean length", `${facts.mean_length.toFixed(2)} bytes`],
    ];
    this.results.replaceChildren(
      element("dl", {}, rows.map(([name, shown]) => [element("dt", {}, name), element("dd", {}, shown)])),
      element("h3", {}, "Tokens by length in bytes"),
      histogram(facts.lengths),
      ...(facts.longest.length ? [element("h3", {}, "Longest with letters")] : []),
      element("p", { class: "chips" }, facts.longest.map((one) => chip(one, () => this.onPick(id, one.id)))),
    );
  }
}

/** Bars of the numbers of tokens of 1, 2, … bytes; the last bar has all longer ones. */
function histogram(lengths) {
  const sizes = Array.from({ length: MAX_LENGTH }, () => 0);
  for (const [length, n] of Object.entries(lengths)) sizes[Math.min(MAX_LENGTH, length) - 1] += n;
  const most = Math.max(...sizes);
  const bars = sizes.map((n, i) => {
    const label = `${i + 1}${i + 1 === MAX_LENGTH ? "+" : ""}`;
    const bar = element("i");
    bar.style.height = `${(n / most) * 100}%`;
    const title = `${label} bytes: ${plural(n, "token")}`;
    return element("li", { title }, bar, element("small", {}, label));
  });
  return element("ul", { class: "histogram", role: "img", "aria-label": "Tokens by length" }, bars);
}
