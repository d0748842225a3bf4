// A token of the vocabulary: its bytes, its merges as a tree, its neighbors.

import { get, isAbort } from "./api.js";
import { count, element, failure } from "./dom.js";
import { fromHex, hex, visible } from "./visible.js";

export class TokenCard {
  /** `onPick(tokenizer, id)` is called for another token that the reader chooses here. */
  constructor(node, onPick) {
    this.node = node;
    this.onPick = onPick;
    this.clear();
  }

  clear() {
    this.request?.abort();
    this.key = null;
    this.node.replaceChildren(
      element("h2", {}, "Token"),
      element("p", { class: "dim" }, "Click a token to see its bytes, its merges and its neighbors."),
    );
  }

  async show(tokenizer, id) {
    const key = `${tokenizer.id}:${id}`;
    if (key === this.key) return;
    this.key = key;
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    try {
      const path = `/api/tokenizers/${encodeURIComponent(tokenizer.id)}/tokens/${id}`;
      let token = await get(path, { signal });
      this.fill(tokenizer, token);
      // Counts are read while the rest is shown.
      while (token.count_pending) {
        await new Promise((resolve) => setTimeout(resolve, 700));
        token = await get(path, { signal });
        if (signal.aborted) return;
        if (!token.count_pending) this.fill(tokenizer, token);
      }
    } catch (error) {
      if (isAbort(error)) return;
      this.key = null;
      this.node.replaceChildren(element("h2", {}, "Token"), failure(error));
    }
  }

  fill(tokenizer, token) {
    const bytes = fromHex(token.hex);
    const rank = token.tree?.rank ?? null;
    const near = [...token.neighbours, token].sort((a, b) => a.id - b.id);
    const facts = [
      ["id", String(token.id)],
      ["bytes", element("code", {}, hex(bytes)), bytes.length > 1 ? ` (${bytes.length})` : ""],
      token.special ? ["kind", "special token"] : null,
      rank === null ? null : ["merge", `number ${count(rank + 1)}`],
      token.count === null
        ? token.count_pending && ["in training", "…"]
        : ["in training", `${count(token.count)} ×`, token.count_source ? ` (${token.count_source})` : ""],
      ["tokenizer", tokenizer.name],
    ].filter(Boolean);
    this.node.replaceChildren(
      element("h2", {}, "Token"),
      element("p", { class: "token-text" }, element("code", {}, visible(bytes))),
      element(
        "dl",
        {},
        facts.map(([name, ...shown]) => [element("dt", {}, name), element("dd", {}, ...shown)]),
      ),
      ...this.tree(tokenizer, token),
      element("h3", {}, "Neighbors"),
      element(
        "p",
        { class: "chips" },
        near.map((one) => chip(one, () => this.onPick(tokenizer.id, one.id), one === token)),
      ),
    );
    // The root is in the middle of a tree that is wider than the card.
    const tree = this.node.querySelector(".tree");
    if (tree) tree.scrollLeft = (tree.scrollWidth - tree.clientWidth) / 2;
  }

  tree(tokenizer, token) {
    if (!token.tree?.parts?.length) return [];
    const tree = element("div", { class: "tree", tabindex: "0", role: "group", "aria-label": "Merges" });
    tree.append(element("ul", {}, this.branch(tokenizer, token.tree)));
    return [element("h3", {}, "Merges"), tree];
  }

  branch(tokenizer, node) {
    const { id, parts } = node;
    const box = element(
      "button",
      {
        type: "button",
        title: `id ${id}: ${hex(fromHex(node.hex))}`,
        onclick: () => this.onPick(tokenizer.id, id),
      },
      element("code", {}, visible(fromHex(node.hex))),
      element("small", {}, String(id)),
    );
    const below = parts?.length
      ? element("ul", {}, parts.map((part) => this.branch(tokenizer, part)))
      : null;
    return element("li", {}, box, below);
  }
}

/** A token as a small button. */
export function chip(token, onclick, isCurrent = false) {
  const bytes = fromHex(token.hex);
  return element(
    "button",
    {
      class: token.special ? "chip special" : "chip",
      type: "button",
      title: `id ${token.id}: ${hex(bytes.subarray(0, 32))}`,
      "aria-current": isCurrent ? "true" : null,
      onclick,
    },
    element("code", {}, visible(bytes).slice(0, 40)),
    element("small", {}, String(token.id)),
  );
}
