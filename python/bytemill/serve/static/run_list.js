// The list of runs, in groups: those of each sweep, and the others. Checked runs are drawn.

import { color, dash } from "./chart.js";
import { breakable, count, element, redraw, short, svg, value } from "./dom.js";

export class RunList {
  /** `onCheck(id, isChecked)` and `onSweep(id)` are called for what the reader does. */
  constructor(node, filter, { onCheck, onSweep }) {
    this.node = node;
    this.filter = filter;
    this.onCheck = onCheck;
    this.onSweep = onSweep;
    filter.addEventListener("input", () => this.draw());
  }

  /** `numbers` has, for each run that is drawn, the number of its color. */
  show(runs, sweeps, numbers, sweep) {
    Object.assign(this, { runs, sweeps, numbers, sweep });
    this.draw();
  }

  draw() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => words.every((word) => run.name.toLowerCase().includes(word));
    const found = this.runs.filter(fits);
    const groups = [
      ...this.sweeps.map((sweep) => [sweep, found.filter((run) => run.sweep === sweep.id)]),
      [null, found.filter((run) => !this.sweeps.some((sweep) => sweep.id === run.sweep))],
    ].reverse();
    redraw(
      this.node,
      ...groups.filter(([, runs]) => runs.length).map(([sweep, runs]) => this.group(sweep, runs)),
      ...(found.length ? [] : [element("p", { class: "dim" }, "No run has this name.")]),
    );
  }

  group(sweep, runs) {
    const head =
      sweep &&
      element(
        "button",
        {
          id: `sweep-${sweep.id}`,
          class: "link sweep-name",
          type: "button",
          "aria-pressed": sweep.id === this.sweep ? "true" : "false",
          onclick: () => this.onSweep(sweep.id === this.sweep ? null : sweep.id),
        },
        sweep.name,
      );
    return element(
      "section",
      {},
      head ? element("h3", {}, "Sweep ", head) : element("h3", {}, "Runs"),
      element("ul", {}, runs.map((run) => this.item(run, sweep))),
    );
  }

  item(run, sweep) {
    const number = this.numbers.get(run.id);
    const box = element("input", {
      id: `run-${run.id}`,
      type: "checkbox",
      checked: number !== undefined,
      onchange: (event) => this.onCheck(run.id, event.target.checked),
    });
    const isShort = sweep && run.name.startsWith(`${sweep.name}/`);
    const name = isShort ? run.name.slice(sweep.name.length + 1) : run.name;
    const facts = [
      run.status === "finished" ? null : element("span", { class: `status ${run.status}` }, run.status),
      run.step < run.steps ? `step ${count(run.step)} of ${count(run.steps)}` : `${count(run.step)} steps`,
      run.n_parameters && `${short(run.n_parameters)} parameters`,
      run.val_loss !== null && `best loss ${value(run.val_loss)}`,
    ].filter(Boolean);
    return element(
      "li",
      {},
      element(
        "label",
        { class: "run" },
        box,
        swatch(number),
        element("span", { class: "run-name" }, breakable(name.replaceAll(",", ", "))),
        element("span", { class: "run-facts dim" }, facts.flatMap((one) => [element("span", {}, one), " "])),
      ),
    );
  }
}

/** The line of a run in the charts; empty without a number. */
export function swatch(number) {
  const size = { viewBox: "0 0 22 10", width: 22, height: 10 };
  const drawn = svg("svg", { class: "swatch", ...size, "aria-hidden": "true" });
  if (number !== undefined) {
    const style = { "stroke-width": 3, "stroke-dasharray": dash(number) || null };
    drawn.append(svg("path", { d: "M0 5H22", stroke: color(number), ...style }));
  }
  return drawn;
}
