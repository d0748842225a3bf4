// A sweep: its runs as a table, best first or by any column, and the loss against each setting.

import { Chart, color } from "./chart.js";
import { duration, element, redraw, value } from "./dom.js";
import { table, text } from "./details.js";
import { swatch } from "./run_list.js";

const RESULTS = [
  ["status", (trial) => trial.status],
  ["step", (trial) => trial.step],
  ["loss", (trial) => trial.loss],
  ["held-out loss", (trial) => trial.val_loss],
  ["bits per byte", (trial) => trial.val_bits_per_byte],
  ["time", (trial) => trial.seconds],
];

export class SweepTable {
  /** `onCheck(run, isChecked)` is called for a run that the reader wants to see. */
  constructor(node, onCheck) {
    this.node = node;
    this.onCheck = onCheck;
    this.sorted = { column: "held-out loss", down: false };
    this.charts = new Map();
  }

  clear() {
    this.node.replaceChildren();
    this.charts.clear();
  }

  show(name, { fields, trials }, numbers) {
    this.name = name;
    this.fields = fields;
    this.trials = trials;
    this.numbers = numbers;
    this.columns = [...fields.map((field) => [field, (trial) => trial.settings[field]]), ...RESULTS];
    const done = trials.filter((one) => !["training", "interrupted"].includes(one.status)).length;
    const state = ` ${done} of ${trials.length} runs ended`;
    this.place = this.node.querySelector(".scroll")?.scrollTop ?? 0;
    redraw(
      this.node,
      element("h2", {}, `Sweep ${name}`, element("span", { class: "dim" }, state)),
      this.table(),
      element("div", { class: "plots" }, fields.map((field) => this.plot(field))),
    );
    this.node.querySelector(".scroll").scrollTop = this.place;
  }

  /** Shows which runs are drawn; `numbers` has the number of the color of each. */
  mark(numbers) {
    this.numbers = numbers;
    for (const label of this.node.querySelectorAll("label[data-run]")) {
      const number = numbers.get(label.dataset.run);
      label.firstChild.checked = number !== undefined;
      label.lastChild.replaceWith(swatch(number));
    }
  }

  // --- the table ----------------------------------------------------------------------------------

  table() {
    const heads = this.columns.map(([name]) => {
      const isSorted = this.sorted.column === name;
      const mark = isSorted ? (this.sorted.down ? " ↓" : " ↑") : "";
      const sort = () => {
        this.sorted = { column: name, down: isSorted && !this.sorted.down };
        this.show(this.name, this, this.numbers);
      };
      const direction = isSorted ? (this.sorted.down ? "descending" : "ascending") : "none";
      return element(
        "th",
        { scope: "col", "aria-sort": direction },
        element(
          "button",
          { id: `sort-${name}`, class: "quiet", type: "button", onclick: sort },
          name + mark,
        ),
      );
    });
    const rows = this.inOrder().map((trial) => this.row(trial));
    const shown = table(element("tr", {}, element("td"), heads), rows);
    shown.querySelector("table").classList.add("trials");
    return shown;
  }

  row(trial) {
    const number = this.numbers.get(trial.run);
    const box = element("input", {
      id: trial.run && `trial-${trial.run}`,
      type: "checkbox",
      checked: number !== undefined,
      disabled: trial.run === null,
      "aria-label": `Draw ${trial.name ?? trial.run}`,
      onchange: (event) => this.onCheck(trial.run, event.target.checked),
    });
    const best = Math.min(...this.trials.map(score));
    const cells = this.columns.map(([name, of]) => element("td", {}, shownAs(name, of(trial))));
    return element(
      "tr",
      { class: score(trial) === best && Number.isFinite(best) ? "best" : null, title: trial.message },
      element("td", {}, element("label", { class: "run", "data-run": trial.run }, box, swatch(number))),
      cells,
    );
  }

  inOrder() {
    const { column, down } = this.sorted;
    const of = this.columns.find(([name]) => name === column)?.[1] ?? score;
    const sign = down ? -1 : 1;
    return [...this.trials].sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      // Missing values come last in both orders.
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      const isNumeric = typeof x === "number" && typeof y === "number";
      return sign * (isNumeric ? x - y : String(x).localeCompare(String(y)));
    });
  }

  // --- plots --------------------------------------------------------------------------------------

  /** The loss of each run over one setting. */
  plot(field) {
    const ended = this.trials.filter((one) => Number.isFinite(score(one)));
    const settings = ended.map((one) => one.settings[field]);
    const isNumeric = settings.every((one) => typeof one === "number");
    const labels = isNumeric ? null : [...new Set(settings.map(text))];
    const points = ended
      .map((one) => {
        const setting = one.settings[field];
        const x = labels ? labels.indexOf(text(setting)) : setting;
        return { x, y: score(one), name: one.name ?? one.run };
      })
      .sort((a, b) => a.x - b.x);
    const xs = points.map((one) => one.x);
    const isWide = isNumeric && xs[0] > 0 && xs.at(-1) / xs[0] > 8;
    const chart = this.charts.get(field) ?? new Chart(`Loss by ${field}`, { height: 190 });
    this.charts.set(field, chart);
    const series = [
      {
        name: "loss",
        xs,
        ys: points.map((one) => one.y),
        color: color(0),
        mark: true,
        label: (i) => points[i].name,
      },
    ];
    // Without a width of its own, a chart draws itself when it is in the page.
    chart.show(series, { xName: field, xLog: isWide, xLabels: labels, showX: value });
    return chart.node;
  }
}

function score(trial) {
  const found = trial.val_loss ?? trial.loss;
  return trial.status === "diverged" || found === null ? Infinity : found;
}

function shownAs(name, one) {
  if (name === "time") return one ? duration(one) : "–";
  return typeof one === "number" && !Number.isInteger(one) ? value(one) : text(one);
}
