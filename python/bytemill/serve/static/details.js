// Below the curves: links, samples over time, and what differs between the configs.

import { get, isAbort } from "./api.js";
import { breakable, count, element, failure, value } from "./dom.js";
import { swatch } from "./run_list.js";

export class Details {
  constructor(node) {
    this.node = node;
    this.links = element("section", { class: "links" });
    this.samples = element("section", { class: "samples" });
    this.configs = element("section", {});
    this.place = 1; // of the slider: the share of the way to the last sample
    this.slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Step of the samples" });
    this.step = element("output", { class: "dim" });
    this.texts = element("div", { class: "texts" });
    this.samples.append(
      element("div", { class: "bar" }, element("h2", {}, "Samples"), this.slider, this.step),
      this.texts,
    );
    this.slider.addEventListener("input", () => {
      this.place = Number(this.slider.value) / Math.max(1, Number(this.slider.max));
      this.drawSamples();
    });
    node.replaceChildren(this.links, this.samples, this.configs);
  }

  /** `shown` has {entry, metrics, number} for each run. */
  show(shown) {
    const ids = shown.map((one) => one.entry.id).join();
    this.shown = shown;
    if (ids !== this.ids) {
      this.ids = ids;
      this.showLinks();
      this.showConfigs();
    }
    this.showSamples();
  }

  showLinks() {
    this.links.replaceChildren(
      ...this.shown.map(({ entry, number }) =>
        element(
          "p",
          {},
          element("b", {}, swatch(number), element("span", {}, breakable(entry.name))),
          element("a", { href: `/write#run=${encodeURIComponent(entry.id)}` }, "Write with this run"),
          report(entry.id),
        ),
      ),
    );
  }

  // --- samples ------------------------------------------------------------------------------------

  showSamples() {
    const steps = new Set(this.shown.flatMap(({ metrics }) => metrics.samples.map((one) => one.step)));
    this.steps = [...steps].sort((a, b) => a - b);
    this.samples.hidden = !this.steps.length;
    if (!this.steps.length) return;
    this.slider.max = String(this.steps.length - 1);
    this.slider.value = String(Math.round(this.place * (this.steps.length - 1)));
    this.drawSamples();
  }

  drawSamples() {
    const step = this.steps[Number(this.slider.value)];
    this.step.textContent = `step ${count(step)}`;
    const key = JSON.stringify([step, this.ids, this.steps.length]);
    if (key === this.samplesKey) return;
    this.samplesKey = key;
    this.texts.replaceChildren(
      ...this.shown.flatMap(({ entry, metrics, number }) => {
        const sample = metrics.samples.findLast((one) => one.step <= step);
        if (!sample) return [];
        return element(
          "article",
          {},
          element(
            "h3",
            {},
            swatch(number),
            element("span", {}, breakable(entry.name), `, step ${count(sample.step)}`),
          ),
          element("pre", {}, sample.text),
        );
      }),
    );
  }

  // --- configs ------------------------------------------------------------------------------------

  async showConfigs() {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    const { shown } = this;
    this.configs.replaceChildren();
    try {
      if (shown.length > 1) {
        const ids = shown.map((one) => one.entry.id).join(",");
        const { fields } = await get(`/api/differences?runs=${encodeURIComponent(ids)}`, { signal });
        this.configs.replaceChildren(element("h2", {}, "Differences between configs"), this.differences(shown, fields));
      } else if (shown.length) {
        const run = await get(`/api/runs/${encodeURIComponent(shown[0].entry.id)}`, { signal });
        this.configs.replaceChildren(element("h2", {}, "Config"), config(run.config));
      }
    } catch (error) {
      if (!isAbort(error)) this.configs.replaceChildren(failure(error));
    }
  }

  differences(shown, fields) {
    if (!fields.length) return element("p", { class: "dim" }, "These runs have the same config.");
    const head = shown.map(({ entry, number }) =>
      element("th", { scope: "col" }, swatch(number), breakable(entry.name)),
    );
    const rows = fields.map(({ name, values }) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, element("code", {}, name)),
        values.map((one) => element("td", {}, text(one))),
      ),
    );
    return table(element("tr", {}, element("td"), head), rows);
  }
}

function report(run) {
  const href = `/runs/${encodeURIComponent(run)}/report`;
  return element("a", { href, target: "_blank", rel: "noopener" }, "Report");
}

/** The parts of a config, each a table of its fields. */
function config(parts) {
  const tables = Object.entries(parts).filter(([, fields]) => fields && typeof fields === "object");
  return element(
    "div",
    { class: "config" },
    tables.map(([name, fields]) =>
      element(
        "section",
        {},
        element("h3", {}, name),
        element(
          "dl",
          {},
          Object.entries(fields).map(([key, one]) => [element("dt", {}, key), element("dd", {}, text(one))]),
        ),
      ),
    ),
  );
}

export function table(head, rows) {
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" },
    element("table", { class: "facts" }, element("thead", {}, head), element("tbody", {}, rows)),
  );
}

export function text(one) {
  if (one === null || one === undefined) return "–";
  if (typeof one === "number") return Number.isInteger(one) ? String(one) : value(one);
  return typeof one === "object" ? JSON.stringify(one) : String(one);
}
