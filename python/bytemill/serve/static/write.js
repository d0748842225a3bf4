// The Write page: models continue a prompt.

import { ApiError, events, get, isAbort } from "./api.js";
import { byId, copy, count, debounced, element, failure, notice, plural, short, showNotes, value } from "./dom.js";
import * as fragment from "./fragment.js";
import { Sample, closeMenu } from "./sample.js";
import { SamplingSettings } from "./sampling.js";

const N_ALTERNATIVES = 10;
const REASONS = { length: "token limit", end: "end of text", stop: "stop text" };

const prompt = byId("prompt");
let runs = [];
let models = []; // the choices of run and checkpoint
const writing = new Set(); // requests under way
const rates = new Map(); // request → {n, rate, seed}, of the texts shown

const settings = new SamplingSettings(byId("sampling"), () => store());

// --- a choice of run and checkpoint ---------------------------------------------------------------

class ModelChoice {
  constructor(run, step) {
    this.run = element(
      "select",
      { "aria-label": "Run", onchange: () => this.offerSteps("best") },
      runs.map((one) => element("option", { value: one.id }, one.name)),
    );
    this.step = element("select", { "aria-label": "Checkpoint", onchange: () => store() });
    this.about = element("p", { class: "dim" });
    this.close = element(
      "button",
      { class: "quiet", type: "button", "aria-label": "Remove this model", onclick: () => this.remove() },
      "✕",
    );
    this.node = element(
      "div",
      { class: "model" },
      element("div", { class: "bar" }, this.run, this.close),
      this.step,
      this.about,
    );
    this.run.value = run;
    this.offerSteps(step);
  }

  get entry() {
    return runs.find((one) => one.id === this.run.value);
  }

  get chosen() {
    const step = this.step.value;
    return { run: this.run.value, step: /^\d+$/.test(step) ? Number(step) : step };
  }

  get title() {
    return `${this.entry.name}, ${this.step.selectedOptions[0]?.textContent ?? ""}`;
  }

  /** The checkpoints there are; runs in training get new ones. */
  offerSteps(chosen) {
    const { checkpoints, best, val_loss, n_parameters, status, step } = this.entry;
    const options = [
      ["best", best === null ? "best" : `best (step ${count(best)})`],
      ["last", checkpoints.length ? `last (step ${count(checkpoints.at(-1))})` : "last"],
      ...checkpoints.map((one) => [String(one), `step ${count(one)}`]),
    ];
    this.step.replaceChildren(...options.map(([key, text]) => element("option", { value: key }, text)));
    this.step.value = options.some(([key]) => key === chosen) ? chosen : "best";
    const facts = [
      n_parameters && `${short(n_parameters)} parameters`,
      val_loss !== null && `best held-out loss ${value(val_loss)}`,
      status === "training" && `in training, step ${count(step)}`,
    ];
    this.about.textContent = facts.filter(Boolean).join(", ");
    store();
  }

  remove() {
    models = models.filter((one) => one !== this);
    showModels();
  }
}

function showModels() {
  byId("models").replaceChildren(...models.map((one) => one.node));
  for (const one of models) one.close.hidden = models.length < 2;
  byId("compare").hidden = models.length > 1;
  store();
}

// --- writing --------------------------------------------------------------------------------------

/** One request; its tokens go to `samples`. */
async function write(model, samples, from, sampling) {
  const request = new AbortController();
  if ([...writing].every((one) => one.signal.aborted)) rates.clear();
  writing.add(request);
  showState();
  for (const one of samples) one.restart();
  const body = { ...model, ...from, ...sampling, alternatives: N_ALTERNATIVES };
  for (const [key, given] of Object.entries(body)) if (given === null) delete body[key];
  const began = performance.now();
  let n = 0;
  try {
    for await (const event of events("/api/write", body, { signal: request.signal })) {
      if (event.type === "start") {
        // Continuations know their tokens already.
        for (const one of samples) {
          if (!one.tokens.length) one.add(event.prompt.map((token) => ({ ...token, p: null })));
        }
        for (const one of samples) one.seed = event.seed;
      } else if (event.type === "token") {
        n += 1;
        samples[event.sample].add([event]);
        showRate(request, n, n / Math.max((performance.now() - began) / 1000, 1e-3));
      } else if (event.type === "end") {
        samples[event.sample].end(REASONS[event.reason] ?? event.reason);
      } else if (event.type === "done") {
        showRate(request, event.n_tokens, event.tokens_per_second, samples[0].seed);
      } else if (event.type === "error") {
        throw new ApiError(event.message, event.hint);
      }
    }
    endAll(samples, "ended");
  } catch (error) {
    if (isAbort(error)) endAll(samples, "stopped");
    else endAll(samples, "", failure(error));
  } finally {
    writing.delete(request);
    showState();
  }
}

function endAll(samples, reason, problem = null) {
  for (const one of samples) if (one.busy) one.end(reason, problem);
}

/** The settings, or null after an explanation. */
function sampling() {
  try {
    return settings.values();
  } catch (error) {
    byId("rate").textContent = error.message;
    return null;
  }
}

function go() {
  const chosen = sampling();
  if (!chosen || !models.length) return;
  stop();
  closeMenu();
  byId("scale").hidden = false;
  byId("samples").replaceChildren();
  byId("rate").textContent = "";
  // With the same seed, the texts of two models differ only because of the models.
  if (models.length > 1 && chosen.seed === null) chosen.seed = Math.floor(Math.random() * 2 ** 31);
  for (const model of models) {
    const samples = Array.from({ length: chosen.n }, (_, k) => {
      const title = chosen.n > 1 ? `${model.title}, sample ${k + 1}` : model.title;
      const made = new Sample(title, actions);
      made.model = model.chosen;
      return made;
    });
    byId("samples").append(...samples.map((one) => one.node));
    write(model.chosen, samples, { prompt: prompt.value }, chosen);
  }
  const n = byId("samples").children.length;
  // Of two models, each row has the samples of one.
  byId("samples").style.setProperty("--columns", n % 3 ? Math.min(n, 2) : 3);
  store();
}

function stop() {
  for (const request of writing) request.abort();
}

const actions = {
  continue: (sample) => resume(sample),
  edit: (sample) => {
    prompt.value = sample.plainText;
    prompt.focus();
    prompt.setSelectionRange(prompt.value.length, prompt.value.length);
    prompt.scrollTop = prompt.scrollHeight;
    prompt.scrollIntoView({ block: "nearest" });
    store();
  },
  choose: (sample, i, token) => {
    const is = sample.tokens[i];
    sample.cut(i);
    const { id, hex, text, p } = token;
    sample.add([{ id, hex, text, p, top: is.top, chosen: id !== is.id }]);
    resume(sample);
  },
};

async function resume(sample) {
  const chosen = sampling();
  if (!chosen) return;
  sample.restart();
  try {
    // The model sees no more than its context, and the server takes no more.
    const ids = sample.ids.slice(-(await contextLength(sample.model.run)));
    write(sample.model, [sample], { ids }, { ...chosen, n: 1 });
  } catch (error) {
    sample.end("", failure(error));
  }
}

const contexts = new Map(); // run id → tokens of its context

async function contextLength(run) {
  if (!contexts.has(run)) {
    const { config } = await get(`/api/runs/${encodeURIComponent(run)}`);
    contexts.set(run, config.model.context_length);
  }
  return contexts.get(run);
}

/** Shows the speed of all requests together, and once they are done, their tokens and seed. */
function showRate(request, n, rate, seed = null) {
  rates.set(request, { n, rate, seed });
  const all = [...rates.values()];
  const sum = (of) => all.reduce((total, one) => total + of(one), 0);
  const seeds = new Set(all.map((one) => one.seed));
  const facts = [`${count(Math.round(sum((one) => one.rate)))} tokens/s`];
  if (!seeds.has(null)) {
    facts.push(plural(sum((one) => one.n), "token"), `seed ${[...seeds].join(", ")}`);
  }
  byId("rate").textContent = facts.join(" · ");
}

function showState() {
  byId("stop").disabled = !writing.size;
}

// --- state and start ------------------------------------------------------------------------------

const store = debounced(storeNow, () => 200);

function storeNow() {
  const [first, second] = models.map(({ chosen }) => `${chosen.run}:${chosen.step}`);
  fragment.write({
    m: first,
    m2: second ?? null,
    prompt: fragment.shareable(prompt.value),
    ...settings.state,
  });
}

function restore() {
  const state = fragment.read();
  models = [];
  for (const text of [state.m, state.m2]) {
    const [run, step] = (text ?? "").split(/:(?=[^:]+$)/);
    if (runs.some((one) => one.id === run)) models.push(new ModelChoice(run, step));
  }
  if (!models.length) {
    const newest = runs.find((one) => one.id === state.run) ?? runs[0];
    models.push(new ModelChoice(newest.id, "best"));
  }
  settings.restore(state);
  if (state.prompt !== undefined) prompt.value = state.prompt;
  showModels();
}

async function load() {
  const found = await get("/api/catalog");
  showNotes(found.notes);
  // Text needs a tokenizer, and weights.
  runs = found.runs.filter((one) => one.tokenizer && one.checkpoints.length);
}

async function start() {
  const nothing = byId("nothing");
  try {
    await load();
  } catch (error) {
    nothing.replaceChildren(failure(error));
    return;
  }
  byId("page").hidden = !runs.length;
  if (!runs.length) {
    const hint = "Train a model on the tokens of any text, then serve its directory:";
    const code = "bytemill train tokens/ -o run/\nbytemill serve run/";
    nothing.replaceChildren(notice("No run with a checkpoint was found.", hint, { code }));
    return;
  }
  nothing.replaceChildren();
  restore();
  byId("samples").replaceChildren(
    element("p", { class: "dim empty" }, "Type a prompt and press Write (Ctrl+Enter)."),
  );
}

/** New checkpoints, when the reader comes back to this page. */
async function refresh() {
  if (document.hidden || !models.length) return;
  try {
    const before = new Set(models.map((one) => one.entry));
    await load();
    for (const model of models) {
      if (model.entry && !before.has(model.entry)) model.offerSteps(model.step.value);
    }
  } catch {
    // The banner shows it.
  }
}

byId("go").addEventListener("click", go);
byId("stop").addEventListener("click", stop);
byId("compare").addEventListener("click", () => {
  const { entry, chosen } = models[0];
  const others = entry.checkpoints.filter((one) => one !== entry.best);
  const other = runs.find((one) => one !== entry);
  if (others.length || !other) models.push(new ModelChoice(chosen.run, String(others[0] ?? "last")));
  else models.push(new ModelChoice(other.id, "best"));
  showModels();
});
byId("share").addEventListener("click", () => {
  storeNow();
  copy(byId("share"), location.href);
});
prompt.addEventListener("input", store);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go();
  else if (event.key === "Escape") stop();
});
document.addEventListener("visibilitychange", refresh);
document.addEventListener("server-back", () => {
  if (!runs.length) start();
});
fragment.onChange(() => runs.length && restore());
start();
