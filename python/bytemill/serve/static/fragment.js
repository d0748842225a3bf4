// State of a page in the fragment of its address, which is not sent to the server.

import { byId } from "./dom.js";

// Characters of text that a link may hold; browsers and mail programs cut longer ones.
const MAX_LINK = 6000;

/** The fields of the fragment, as strings. */
export function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Replaces the fragment. Fields that are null, false or "" are skipped. */
export function write(fields) {
  const kept = Object.entries(fields).filter(([, v]) => v !== null && v !== false && v !== "");
  const text = new URLSearchParams(kept.map(([k, v]) => [k, v === true ? "1" : String(v)]));
  const hash = text.size ? `#${text}` : "";
  if (hash !== location.hash) history.replaceState(null, "", location.pathname + hash);
}

/** The text of a page as a field; null if it is too long, with a note on the page. */
export function shareable(text) {
  byId("share-note").hidden = text.length <= MAX_LINK;
  return text.length > MAX_LINK ? null : text;
}

/** Calls `act` when the reader opens another address of this page. */
export function onChange(act) {
  window.addEventListener("hashchange", act);
}
