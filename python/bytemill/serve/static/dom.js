// Elements, numbers as text, and delayed calls.

const SVG = "http://www.w3.org/2000/svg";

/**
 * A new element. `fields` are attributes, and listeners where they start with "on"; null and false
 * are skipped. `children` may be nested lists.
 */
export function element(tag, fields = {}, ...children) {
  return filled(document.createElement(tag), fields, children);
}

export function svg(tag, fields = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), fields, children);
}

function filled(made, fields, children) {
  for (const [name, value] of Object.entries(fields)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Replaces the children of a node; the element with the id of the focused one gets the focus. */
export function redraw(node, ...children) {
  const focused = document.activeElement?.id;
  node.replaceChildren(...children);
  if (focused) byId(focused)?.focus({ preventScroll: true });
}

/** A name that may break after a slash or a comma. */
export const breakable = (name) =>
  name.split(/(?<=[/,])/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));

const plain = new Intl.NumberFormat("en-US");

/** 12345 → "12,345". */
export const count = (n) => plain.format(n);

/** Three or four significant digits: "0.00214", "3.482", "12,345", "1.2e-7". */
export function value(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size >= 1000) return plain.format(Math.round(x));
  if (size < 1e-4) return x.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(x.toPrecision(4)));
}

/** 1234567 → "1.23 M". */
export function short(n) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(n) >= size) return `${Number((n / size).toPrecision(3))} ${unit}`;
  }
  return value(n);
}

/** "1 token", "2 tokens". */
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** 3725 → "1 h 2 min". */
export function duration(seconds) {
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Calls `act` once, `delay()` milliseconds after the last call. */
export function debounced(act, delay) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, delay());
  };
}

/** Calls `act` at most once per frame. */
export function perFrame(act) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      act();
    });
  };
}

/** A message in place of content. `hint` and `code` (a command to type) are optional. */
export function notice(message, hint = null, { error = false, code = null } = {}) {
  return element(
    "div",
    { class: error ? "notice error" : "notice", role: error ? "alert" : "status" },
    element("p", {}, message),
    hint && element("p", { class: "dim" }, hint),
    code && element("pre", {}, code),
  );
}

/** The notice for an error of a request. */
export const failure = (error) => notice(error.message, error.hint, { error: true });

/** Lists what the server found but could not read. */
export function showNotes(notes) {
  if (byId("notes").childElementCount && notes.join() === byId("notes").dataset.shown) return;
  byId("notes").dataset.shown = notes.join();
  byId("notes").replaceChildren(
    ...(notes.length
      ? [
          element(
            "details",
            {},
            element("summary", {}, `${plural(notes.length, "note")} on files that were skipped`),
            element("ul", {}, notes.map((note) => element("li", {}, note))),
          ),
        ]
      : []),
  );
}

/** Copies text; the button says so for a moment. */
export async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => {
    button.textContent = label;
  }, 1200);
}
