// The metrics of a run: rows from the server, kept as columns, which grow while it trains.

import { get } from "./api.js";

// Fields without a curve; predictions are made once, and compared in the report.
const NOT_DRAWN = new Set([
  "step", "seconds", "sample", "predicted_memory", "predicted_base_memory", "predicted_seconds",
]);

export class Metrics {
  constructor(run) {
    this.run = run;
    this.status = null;
    this.clear();
  }

  clear() {
    this.next = 0;
    this.version = null;
    this.columns = new Map(); // field → {steps, times, ys}
    this.samples = [];
    this.seconds = 0;
    this.revision = (this.revision ?? 0) + 1;
  }

  /** Reads what is new; whether there was any. */
  async update(signal) {
    const before = this.revision;
    for (;;) {
      const fields = new URLSearchParams({ after: this.next });
      if (this.version !== null) fields.set("version", this.version);
      const path = `/api/runs/${encodeURIComponent(this.run)}/metrics?${fields}`;
      const found = await get(path, { signal });
      this.status = found.status;
      // A run that was trained anew has other rows.
      if ((found.after ?? this.next) !== this.next) this.clear();
      this.version = found.version ?? null;
      for (const row of found.rows) this.add(row);
      this.next = found.next;
      if (!found.rows.length || this.next >= (found.total ?? Infinity)) break;
    }
    return this.revision !== before;
  }

  add(row) {
    this.revision += 1;
    this.seconds += row.seconds ?? 0;
    if (typeof row.sample === "string") this.samples.push({ step: row.step, text: row.sample });
    for (const [name, y] of Object.entries(row)) {
      if (NOT_DRAWN.has(name) || typeof y !== "number") continue;
      if (!this.columns.has(name)) this.columns.set(name, { steps: [], times: [], ys: [] });
      const column = this.columns.get(name);
      column.steps.push(row.step);
      column.times.push(this.seconds);
      column.ys.push(y);
    }
  }

  /** The points of a field over `step`, `tokens` or `time`; null if there are none. */
  points(name, by, tokensPerStep) {
    const column = this.columns.get(name);
    if (!column) return null;
    const { steps, times, ys } = column;
    if (by === "time") return { xs: times, ys };
    if (by === "tokens" && tokensPerStep) return { xs: steps.map((step) => step * tokensPerStep), ys };
    return { xs: steps, ys };
  }
}

/** Exponential moving average, without the bias of its start; the first values count fully. */
export function smooth(ys, weight) {
  if (!weight) return ys;
  let [sum, total] = [0, 0];
  return ys.map((y) => {
    if (!Number.isFinite(y)) return y;
    sum = weight * sum + (1 - weight) * y;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}
