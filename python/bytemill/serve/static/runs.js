// The Runs page: curves of several runs, live; samples; configs; sweeps.

import { get } from "./api.js";
import { Chart, color, dash } from "./chart.js";
import { byId, debounced, duration, element, failure, notice, short, showNotes, svg, value } from "./dom.js";
import { Details } from "./details.js";
import * as fragment from "./fragment.js";
import { Metrics, smooth } from "./metrics.js";
import { RunList } from "./run_list.js";
import { extent } from "./scale.js";
import { SweepTable } from "./sweep.js";

const POLL_MS = 1000;
const CATALOG_EVERY = 3; // polls
const MAX_RUNS = 24;
// Charts in this order, then all other fields. The first has both losses.
const CHARTS = {
  loss: { title: "Loss", fields: ["loss", "val_loss"], height: 320 },
  val_bits_per_byte: { title: "Held-out bits per byte" },
  lr: { title: "Learning rate" },
  grad_norm: { title: "Gradient norm" },
  tokens_per_s: { title: "Tokens per second", show: short },
  memory: { title: "Memory", show: (bytes) => `${short(bytes)}B` },
  mfu: { title: "Share of the peak arithmetic (MFU)" },
  val_perplexity: { title: "Held-out perplexity" },
};
const X_NAMES = { step: "step", tokens: "tokens", time: "time" };

let catalog = { runs: [], sweeps: [] };
let sweep = null; // the id of the sweep in the table
const drawn = new Map(); // run id → {number, metrics, tokensPerStep}
const charts = new Map();

const details = new Details(byId("details"));
const list = new RunList(byId("runs"), byId("filter"), {
  onCheck: check,
  onSweep: (id) => chooseSweep(id),
});
const sweepTable = new SweepTable(byId("sweep"), check);

// --- which runs -----------------------------------------------------------------------------------

function check(id, isChecked) {
  if (isChecked) add(id);
  else drawn.delete(id);
  changed();
}

function add(id) {
  if (drawn.has(id) || drawn.size >= MAX_RUNS) return;
  // The first color that is free.
  const taken = new Set([...drawn.values()].map((one) => one.number));
  let number = 0;
  while (taken.has(number)) number += 1;
  drawn.set(id, { number, metrics: new Metrics(id), tokensPerStep: null });
  describe(id);
}

async function describe(id) {
  try {
    const { tokens_per_step: tokens } = await get(`/api/runs/${encodeURIComponent(id)}`);
    const one = drawn.get(id);
    if (one) one.tokensPerStep = tokens;
    if (by() === "tokens") draw();
  } catch {
    // Without it, this run is drawn over steps instead of tokens.
  }
}

function chooseSweep(id) {
  sweep = id;
  // The loss of a diverged run would flatten all other curves.
  const isShown = (run) => run.sweep === id && run.status !== "diverged";
  if (id) for (const run of catalog.runs.filter(isShown)) add(run.id);
  changed();
  updateSweep();
}

/** After the choice of runs changed. */
function changed() {
  showList();
  poll.now();
  store();
}

function numbers() {
  return new Map([...drawn].map(([id, { number }]) => [id, number]));
}

function showList() {
  list.show(catalog.runs, catalog.sweeps, numbers(), sweep);
  sweepTable.mark(numbers());
}

// --- curves ---------------------------------------------------------------------------------------

const by = () => document.querySelector("input[name=x]:checked").value;
const isLog = () => document.querySelector("input[name=y]:checked").value === "log";

function draw() {
  const weight = Number(byId("smoothing").value);
  byId("smoothed").textContent = weight ? weight.toFixed(2) : "off";
  const shown = [...drawn].flatMap(([id, one]) => {
    const entry = catalog.runs.find((run) => run.id === id);
    return entry ? [{ entry, ...one }] : [];
  });
  const fields = new Set(shown.flatMap(({ metrics }) => [...metrics.columns.keys()]));
  const names = [...Object.keys(CHARTS), ...fields].filter((one) => one !== "val_loss");
  const xRange = wholeRange(shown);
  for (const name of new Set(names)) {
    const about = CHARTS[name] ?? { title: name.replaceAll("_", " ") };
    if (!charts.has(name)) {
      const chart = new Chart(about.title, { height: about.height ?? 190, onZoom: zoomAll });
      charts.set(name, chart);
      if (about.fields) chart.node.querySelector("figcaption").append(key());
      byId("charts").append(chart.node);
    }
    const series = shown.flatMap((run) => [...curves(run, about.fields ?? [name], weight)]);
    charts.get(name).show(series, {
      xName: X_NAMES[by()],
      xRange,
      log: isLog(),
      showX: by() === "time" ? duration : short,
      showY: about.show ?? value,
    });
  }
  byId("axes").hidden = byId("charts").hidden = !shown.length;
  details.node.hidden = !shown.length;
  const empty = !shown.length && !sweep;
  let hint = byId("hint");
  if (empty && !hint) {
    hint = element("p", { id: "hint", class: "dim empty" }, "Check a run to see its curves.");
    byId("board").prepend(hint);
  } else if (!empty) {
    hint?.remove();
  }
  details.show(shown);
}

/** What the lines of the first chart are. */
function key() {
  const line = (dots) =>
    svg(
      "svg",
      { width: 34, height: 10, viewBox: "0 0 34 10", "aria-hidden": "true" },
      svg("path", { class: "curve", stroke: "currentColor", "stroke-width": dots ? 1.5 : 2.5, d: "M0 5H34" }),
      dots ? [6, 28].map((cx) => svg("circle", { cx, cy: 5, r: 4, fill: "currentColor" })) : [],
    );
  return element("span", { class: "key dim" }, line(false), "training", line(true), "held out");
}

/** The range of all curves, so that their charts are aligned. */
function wholeRange(shown) {
  const ends = shown.flatMap(({ metrics, tokensPerStep }) =>
    [...metrics.columns.keys()].flatMap((name) => {
      const { xs } = metrics.points(name, by(), tokensPerStep);
      return [xs[0], xs.at(-1)];
    }),
  );
  return extent(ends);
}

function zoomAll(range) {
  for (const chart of charts.values()) chart.zoomTo(range);
}

/** The curves of a run in one chart: each field smoothed, over itself as it is. */
function* curves({ entry, metrics, number, tokensPerStep }, fields, weight) {
  for (const field of fields) {
    const points = metrics.points(field, by(), tokensPerStep);
    if (!points) continue;
    const isHeldOut = field.startsWith("val_");
    const style = { color: color(number), dash: dash(number) };
    const name = fields.length > 1 ? `${entry.name} ${isHeldOut ? "held out" : "training"}` : entry.name;
    // Learning rates and evaluations are few and expensive: shown without smoothing.
    if (isHeldOut || field === "lr" || !weight) {
      yield { name, ...points, ...style, width: isHeldOut ? 1.5 : 2 };
      if (isHeldOut) yield { name, ...points, ...style, mark: true, faint: true };
    } else {
      yield { name, ...points, ...style, faint: true };
      yield { name, xs: points.xs, ys: smooth(points.ys, weight), ...style };
    }
  }
}

// --- polling --------------------------------------------------------------------------------------

const poll = (() => {
  let timer = 0;
  let turn = 0;
  let busy = false;
  let again = false;

  async function act() {
    clearTimeout(timer);
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      if (turn % CATALOG_EVERY === 0) await updateCatalog();
      turn += 1;
      await updateMetrics();
    } catch {
      // The banner shows it; the next turn tries again.
    }
    busy = false;
    const delay = again ? 0 : document.hidden ? 10 * POLL_MS : POLL_MS;
    again = false;
    timer = setTimeout(act, delay);
  }

  return { now: act };
})();

async function updateMetrics() {
  const news = await Promise.all(
    [...drawn].map(async ([id, one]) => {
      // What has ended is read once.
      const entry = catalog.runs.find((run) => run.id === id);
      const isOver = one.metrics.status !== null && one.metrics.status !== "training";
      if (!entry || (isOver && entry.status !== "training" && one.step === entry.step)) return false;
      const isNew = await one.metrics.update();
      one.step = entry.step;
      return isNew;
    }),
  );
  const key = [...drawn.keys()].join();
  if (news.some(Boolean) || key !== updateMetrics.key) draw();
  updateMetrics.key = key;
}

async function updateCatalog() {
  const found = await get("/api/catalog");
  showNotes(found.notes);
  const text = JSON.stringify([found.runs, found.sweeps]);
  if (text === updateCatalog.text) return;
  updateCatalog.text = text;
  catalog = found;
  const isEmpty = !catalog.runs.length;
  byId("page").hidden = isEmpty;
  byId("nothing").hidden = !isEmpty;
  if (isEmpty) {
    const hint =
      "Train a model on the tokens of any text, in a directory that the server was started with. " +
      "New runs appear here.";
    const code = "bytemill train tokens/ -o run/\nbytemill serve .";
    byId("nothing").replaceChildren(notice("No run was found.", hint, { code }));
    return;
  }
  if (!updateCatalog.isRestored) {
    updateCatalog.isRestored = true;
    restore();
  }
  showList();
  updateSweep();
}

async function updateSweep() {
  const entry = catalog.sweeps.find((one) => one.id === sweep);
  if (!entry) {
    sweepTable.clear();
    return;
  }
  try {
    const found = await get(`/api/sweeps/${encodeURIComponent(sweep)}`);
    if (sweep === entry.id) sweepTable.show(entry.name, found, numbers());
  } catch (error) {
    byId("sweep").replaceChildren(failure(error));
  }
}

// --- state and start ------------------------------------------------------------------------------

const store = debounced(
  () =>
    fragment.write({
      runs: [...drawn.keys()].join(","),
      sweep,
      x: by() === "step" ? null : by(),
      y: isLog() ? "log" : null,
      smoothing: byId("smoothing").value === "0.6" ? null : byId("smoothing").value,
    }),
  () => 200,
);

function restore() {
  const state = fragment.read();
  const known = (id) => catalog.runs.some((run) => run.id === id);
  const wanted = (state.runs ?? "").split(",").filter(known);
  sweep = catalog.sweeps.some((one) => one.id === state.sweep) ? state.sweep : null;
  for (const id of drawn.keys()) if (!wanted.includes(id)) drawn.delete(id);
  for (const id of wanted) add(id);
  // At first, what is training now, or the first run.
  if (state.runs === undefined && !sweep) {
    const training = catalog.runs.filter((run) => run.status === "training").slice(0, 4);
    const first = training.length ? training : catalog.runs.slice(0, 1);
    for (const run of first) add(run.id);
  }
  for (const [name, fallback] of [["x", "step"], ["y", "linear"]]) {
    const chosen = CSS.escape(state[name] ?? fallback);
    const radio = document.querySelector(`input[name=${name}][value="${chosen}"]`);
    if (radio) radio.checked = true;
  }
  byId("smoothing").value = state.smoothing ?? "0.6";
}

byId("axes").addEventListener("input", () => {
  draw();
  store();
});
for (const radio of document.querySelectorAll("input[name=x]")) {
  // Another axis, another range.
  radio.addEventListener("change", () => zoomAll(null));
}
fragment.onChange(() => {
  restore();
  changed();
  updateSweep();
});
document.addEventListener("visibilitychange", () => document.hidden || poll.now());

get("/api/catalog").then(
  () => poll.now(),
  (error) => {
    byId("nothing").replaceChildren(failure(error));
    poll.now();
  },
);
