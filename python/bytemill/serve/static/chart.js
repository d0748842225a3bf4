// Charts in SVG: curves, and points. Values appear under the pointer, or by the arrow keys.

import { element, short, svg, value } from "./dom.js";
import { axis, extent } from "./scale.js";

const LEFT = 52;
const RIGHT = 14;
const TOP = 10;
const BOTTOM = 26;
// The width of a digit, in pixels.
const DIGIT = 7.6;
// Characters that fit left of the axis.
const MAX_LABEL = 7;
export const N_COLORS = 8;
const DASHES = ["", "7 3", "2 3"];

export const color = (number) => `var(--s${number % N_COLORS})`;
export const dash = (number) => DASHES[Math.floor(number / N_COLORS) % DASHES.length];

export class Chart {
  /** `height` is in pixels; `onZoom` is called with the range that the reader chose, or null. */
  constructor(title, { height = 240, onZoom = null } = {}) {
    this.height = height;
    this.onZoom = onZoom ?? ((range) => this.zoomTo(range));
    this.title = title;
    this.zoom = null; // [low, high] of x
    this.series = [];
    this.options = {};
    this.picture = svg("svg", { tabindex: "0", role: "img", height });
    this.hint = element("div", { class: "values", role: "status", hidden: true });
    this.reset = element(
      "button",
      { class: "link", type: "button", hidden: true, onclick: () => this.onZoom(null) },
      "Whole range",
    );
    this.node = element(
      "figure",
      { class: "chart" },
      element("figcaption", {}, title, " ", this.reset),
      this.picture,
      this.hint,
    );
    this.resized = new ResizeObserver(() => {
      if (this.picture.clientWidth !== this.width) this.draw();
    });
    this.resized.observe(this.picture);
    this.picture.addEventListener("pointermove", (event) => this.moved(event));
    this.picture.addEventListener("pointerleave", () => this.point(null));
    this.picture.addEventListener("blur", () => this.point(null));
    this.picture.addEventListener("keydown", (event) => this.pressed(event));
    this.picture.addEventListener("pointerdown", (event) => this.grabbed(event));
    this.picture.addEventListener("dblclick", () => this.onZoom(null));
  }

  /**
   * Shows series: {name, xs, ys, color, dash, faint, mark}; xs ascend. `faint` ones are drawn below,
   * without values; `mark` draws points only. Options: xName, xRange (that of the series if not
   * given), log (of y), xLog, xLabels (names of the values 0, 1, …), and the formats showX, showY.
   */
  show(series, options) {
    this.series = series;
    this.options = { showX: short, showY: value, ...options };
    this.node.hidden = !series.some((one) => one.xs.length);
    this.draw();
  }

  zoomTo(range) {
    this.zoom = range;
    this.reset.hidden = !range;
    this.draw();
  }

  // --- drawing ------------------------------------------------------------------------------------

  draw() {
    const width = this.picture.clientWidth;
    if (!width || this.node.hidden) return;
    this.width = width;
    const { log, xLog } = this.options;
    const xs = this.zoom ?? this.wholeRange();
    const range = xs && extent(this.within(xs), { log, margin: 0.06 });
    this.picture.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    if (!range) {
      this.x = null;
      this.picture.replaceChildren();
      return;
    }
    this.x = axis(...xs, LEFT, width - RIGHT, xLog);
    this.y = axis(...range, this.height - BOTTOM, TOP, log);
    const name = `chart-clip-${(this.number ??= ++charts)}`;
    this.cursor = svg("g");
    this.picture.replaceChildren(
      svg("clipPath", { id: name }, this.area(4)),
      ...this.frame(),
      svg("g", { "clip-path": `url(#${name})` }, ...this.series.map((one) => this.curve(one))),
      this.cursor,
    );
    this.picture.setAttribute("aria-label", this.summary());
    if (this.at !== undefined && this.at !== null) this.point(this.at);
  }

  wholeRange() {
    const { xRange, xLog, xLabels } = this.options;
    if (xLabels) return [-0.5, xLabels.length - 0.5];
    if (xRange) return xRange;
    const margin = this.series.some((one) => one.mark) ? 0.05 : 0;
    return extent(ends(this.series), { log: xLog, margin });
  }

  *within([low, high]) {
    // Raw curves count only where nothing else is shown, or one outlier would flatten all.
    const counted = this.series.filter((one) => !one.faint);
    for (const { xs, ys } of counted.length ? counted : this.series) {
      for (let i = 0; i < xs.length; i++) if (xs[i] >= low && xs[i] <= high) yield ys[i];
    }
  }

  *frame() {
    const { x, y, width, height } = this;
    const { xName, showX, showY, xLabels } = this.options;
    const bottom = height - BOTTOM;
    for (const tick of y.ticks(Math.round(height / 40))) {
      const at = y.place(tick);
      yield svg("path", { class: "grid", d: `M${LEFT} ${at.toFixed(1)}H${width - RIGHT}` });
      const text = showY(tick);
      const fits = text.length <= MAX_LABEL;
      yield svg("text", { x: LEFT - 7, y: at + 4, "text-anchor": "end" }, fits ? text : short(tick));
    }
    yield svg("path", { class: "axis", d: `M${LEFT} ${bottom}H${width - RIGHT}` });
    for (const tick of this.xTicks()) {
      const at = x.place(tick);
      yield svg("path", { class: "axis", d: `M${at.toFixed(1)} ${bottom}v4` });
      const text = xLabels ? xLabels[tick] : showX(tick);
      // Centered, but not beyond the edge.
      const center = Math.min(at, width - 2 - (text.length * DIGIT) / 2);
      yield svg("text", { x: center, y: bottom + 17, "text-anchor": "middle" }, text);
    }
    // Left of the axis there is room for a word, and often for the first label only.
    if (!this.title.endsWith(xName)) {
      yield svg("text", { x: LEFT - 7, y: bottom + 17, "text-anchor": "end" }, xName);
    }
  }

  /** The labeled values of x: those of the points if they are few and far apart. */
  xTicks() {
    const { x, width } = this;
    const { xLabels } = this.options;
    if (xLabels) return xLabels.map((_, i) => i);
    const n = Math.max(2, Math.floor(width / 90));
    if (!this.series.every((one) => one.mark)) return x.ticks(n);
    const values = [...new Set(this.series.flatMap((one) => one.xs))].sort((a, b) => a - b);
    const places = values.map(x.place);
    const isWide = places.every((at, i) => !i || at - places[i - 1] > 45);
    return isWide && values.length <= n + 2 ? values : x.ticks(n);
  }

  curve(one) {
    const { xs, ys } = one;
    const style = {
      class: one.faint ? "curve faint" : "curve",
      stroke: one.color,
      "stroke-width": one.faint ? 1 : (one.width ?? 2),
      "stroke-dasharray": one.dash || null,
    };
    if (one.mark) {
      const dots = [];
      for (let i = 0; i < xs.length; i++) {
        if (!this.drawable(ys[i])) continue;
        dots.push(this.dot(one, i, 4, { class: "dot" }));
      }
      return svg("g", {}, dots);
    }
    const line = svg("path", { ...style, d: this.path(xs, ys) });
    const last = xs.length - 1;
    if (one.faint || last < 0 || !this.drawable(ys[last])) return line;
    return svg("g", {}, line, this.dot(one, last, 2.5));
  }

  /** The rectangle between the axes, larger by `margin`. */
  area(margin) {
    const [width, height] = [this.width - LEFT - RIGHT, this.height - TOP - BOTTOM];
    const [x, y] = [LEFT - margin, TOP - margin];
    return svg("rect", { x, y, width: width + 2 * margin, height: height + 2 * margin });
  }

  dot(one, i, r, fields = {}) {
    const [cx, cy] = [this.x.place(one.xs[i]), this.y.place(one.ys[i])];
    return svg("circle", { cx, cy, r, fill: one.color, ...fields });
  }

  drawable(y) {
    return Number.isFinite(y) && (!this.y.log || y > 0);
  }

  /** The path of a curve: in each column of pixels only first, least, greatest and last. */
  path(xs, ys) {
    let d = "";
    let column = null;
    const flush = () => {
      if (!column) return;
      const kept = new Set([column.first, column.low, column.high, column.last]);
      for (const i of [...kept].sort((a, b) => a - b)) {
        const to = `${this.x.place(xs[i]).toFixed(1)} ${this.y.place(ys[i]).toFixed(1)}`;
        d += (d && !column.jump ? "L" : "M") + to;
        column.jump = false;
      }
    };
    let jump = false;
    for (let i = 0; i < xs.length; i++) {
      if (!this.drawable(ys[i])) {
        jump = true;
        continue;
      }
      const pixel = Math.round(this.x.place(xs[i]));
      if (column && column.pixel === pixel && !jump) {
        column.last = i;
        if (ys[i] < ys[column.low]) column.low = i;
        if (ys[i] > ys[column.high]) column.high = i;
      } else {
        flush();
        column = { pixel, first: i, low: i, high: i, last: i, jump };
        jump = false;
      }
    }
    flush();
    return d;
  }

  summary() {
    const named = this.series.filter((one) => !one.faint && one.xs.length);
    const lasts = named.slice(0, 8).map((one) => `${one.name} ${this.options.showY(one.ys.at(-1))}`);
    return `${this.title}: ${lasts.join("; ")}`;
  }

  // --- values under the pointer -------------------------------------------------------------------

  moved(event) {
    if (!this.x) return;
    const at = event.clientX - this.picture.getBoundingClientRect().left;
    if (this.drag !== undefined) this.stretch(at);
    this.point(this.x.value(Math.min(Math.max(at, LEFT), this.width - RIGHT)));
  }

  pressed(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.onZoom(null);
    if (!by || !this.x) return;
    event.preventDefault();
    const shown = this.series.filter((one) => !one.faint);
    const longest = shown.reduce((a, b) => (b.xs.length > a.xs.length ? b : a));
    const i = this.at === undefined || this.at === null ? -1 : nearest(longest.xs, this.at);
    const step = Math.max(1, Math.round(longest.xs.length / 100));
    this.point(longest.xs[Math.min(longest.xs.length - 1, Math.max(0, i + by * step))]);
  }

  /** Shows the values nearest to x; null for none. */
  point(at) {
    this.at = at;
    this.cursor?.replaceChildren();
    this.hint.hidden = at === null;
    if (at === null || !this.x) return;
    const { showX, showY, xName, xLabels } = this.options;
    const shown = [];
    for (const one of this.series) {
      if (one.faint || !one.xs.length) continue;
      const i = nearest(one.xs, at);
      const far = Math.abs(this.x.place(one.xs[i]) - this.x.place(at)) > 24;
      if (far && (at > one.xs.at(-1) || at < one.xs[0])) continue;
      // Points may be above each other.
      const those = one.mark ? [...one.xs.keys()].filter((k) => one.xs[k] === one.xs[i]) : [i];
      for (const k of those) if (this.drawable(one.ys[k])) shown.push({ one, i: k });
    }
    this.hint.hidden = !shown.length;
    if (!shown.length) return;
    const x = this.x.place(at);
    const line = `M${x.toFixed(1)} ${TOP}V${this.height - BOTTOM}`;
    this.cursor.append(svg("path", { class: "cursor", d: line }));
    for (const { one, i } of shown) this.cursor.append(this.dot(one, i, 3.5, { class: "dot" }));
    const lead = shown[0].one.xs[shown[0].i];
    const rows = shown.slice(0, 12).map(({ one, i }) => {
      const key = element("i");
      key.style.background = one.color;
      const name = one.label?.(i) ?? one.name;
      // Evaluations are at other steps than the rest.
      const own = one.xs[i] === lead || xLabels ? "" : `, ${xName} ${showX(one.xs[i])}`;
      const text = shortened(name, Math.min(44, Math.floor(this.width / 14))) + own;
      return element("tr", {}, element("td", {}, key, text), element("td", {}, showY(one.ys[i])));
    });
    const title = xLabels ? `${xName} ${xLabels[lead]}` : `${xName} ${showX(lead)}`;
    this.hint.replaceChildren(element("b", {}, title), element("table", {}, element("tbody", {}, rows)));
    const room = this.width - this.hint.offsetWidth;
    this.hint.style.left = `${Math.max(0, x + 14 > room ? x - this.hint.offsetWidth - 14 : x + 14)}px`;
  }

  // --- dragging chooses a range of x --------------------------------------------------------------

  grabbed(event) {
    if (event.button || !this.x || this.options.xLabels || event.pointerType === "touch") return;
    this.drag = event.clientX - this.picture.getBoundingClientRect().left;
    this.picture.setPointerCapture(event.pointerId);
    this.picture.addEventListener("pointerup", (up) => this.released(up), { once: true });
  }

  stretch(at) {
    this.band?.remove();
    const [from, to] = [Math.min(at, this.drag), Math.max(at, this.drag)];
    const height = this.height - TOP - BOTTOM;
    this.band = svg("rect", { class: "band", x: from, y: TOP, width: to - from, height });
    this.picture.append(this.band);
  }

  released(event) {
    const at = event.clientX - this.picture.getBoundingClientRect().left;
    const [from, to] = [Math.min(at, this.drag), Math.max(at, this.drag)];
    this.drag = undefined;
    this.band?.remove();
    if (to - from < 8) return;
    const inside = (pixel) => this.x.value(Math.min(Math.max(pixel, LEFT), this.width - RIGHT));
    this.onZoom([inside(from), inside(to)]);
  }
}

let charts = 0;

/** A name without its middle if it is longer than `n` characters: runs often differ at the end. */
function shortened(name, n) {
  const half = Math.floor((n - 1) / 2);
  return name.length > n ? `${name.slice(0, half)}…${name.slice(-half)}` : name;
}

function* ends(series) {
  for (const { xs, mark } of series) {
    if (mark) yield* xs;
    else if (xs.length) yield* [xs[0], xs.at(-1)];
  }
}

/** The index of the value nearest to `x` in ascending values. */
function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}
