// The sampling settings: their fields, their meaning, their values.

import { element } from "./dom.js";

const FIELDS = [
  { name: "max_tokens", label: "Tokens", start: 120, min: 1, max: 4096, step: 1, whole: true,
    help: "Maximum number of new tokens." },
  { name: "temperature", label: "Temperature", start: 0.8, min: 0, max: 5, step: 0.05,
    help: "Below 1, likely tokens become likelier; 0 always takes the likeliest." },
  { name: "top_k", label: "Top k", start: null, min: 1, max: 1e6, step: 1, whole: true,
    help: "Choose among the k likeliest tokens only." },
  { name: "top_p", label: "Top p", start: null, min: 0, max: 1, step: 0.01,
    help: "Choose among the likeliest tokens that together have this probability." },
  { name: "min_p", label: "Min p", start: 0.02, min: 0, max: 1, step: 0.01,
    help: "Drop tokens less likely than this fraction of the likeliest token." },
  { name: "repetition_penalty", label: "Repetition penalty", start: 1, min: 0.1, max: 10, step: 0.05,
    help: "Above 1, tokens that occurred already become less likely." },
  { name: "n", label: "Samples", start: 1, min: 1, max: 4, step: 1, whole: true,
    help: "Continuations side by side." },
  { name: "seed", label: "Seed", start: null, min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, whole: true,
    empty: "random", help: "The same seed and settings give the same text." },
];

export class SamplingSettings {
  constructor(form, onChange) {
    this.inputs = new Map();
    for (const field of FIELDS) {
      const input = element("input", {
        id: `set-${field.name}`,
        type: "number",
        min: field.min,
        max: field.max,
        step: field.whole ? 1 : "any",
        placeholder: field.empty ?? "off",
        "aria-describedby": `help-${field.name}`,
      });
      input.addEventListener("keydown", (event) => nudge(event, input, field, onChange));
      this.inputs.set(field.name, input);
      form.append(
        element(
          "div",
          { class: "setting" },
          element("label", { for: input.id }, field.label),
          input,
          element("p", { id: `help-${field.name}`, class: "dim" }, field.help),
        ),
      );
    }
    this.stop = element("textarea", {
      id: "set-stop",
      rows: 1,
      placeholder: "none",
      spellcheck: "false",
      "aria-describedby": "help-stop",
    });
    form.append(
      element(
        "div",
        { class: "setting" },
        element("label", { for: "set-stop" }, "Stop at"),
        this.stop,
        element(
          "p",
          { id: "help-stop", class: "dim" },
          "A sample ends before any of these texts, one per line; \\n is a newline.",
        ),
      ),
    );
    form.addEventListener("input", onChange);
    form.addEventListener("submit", (event) => event.preventDefault());
    this.restore({});
  }

  /** The values for a request; null where a setting is off. Throws for a wrong one. */
  values() {
    const found = {};
    for (const field of FIELDS) {
      const input = this.inputs.get(field.name);
      if (!input.checkValidity()) {
        input.focus();
        throw new RangeError(`${field.label}: ${input.validationMessage}`);
      }
      found[field.name] = input.value === "" ? null : Number(input.value);
      if (found[field.name] === null && field.start !== null && field.name !== "min_p") {
        found[field.name] = field.start;
      }
    }
    const stop = this.stop.value.split("\n").filter(Boolean);
    return { ...found, stop: stop.map((one) => one.replaceAll("\\n", "\n")) };
  }

  /** What differs from the start, for the address. */
  get state() {
    const texts = FIELDS.map(({ name, start }) => {
      const text = this.inputs.get(name).value;
      return [name, text === String(start ?? "") ? null : text || "off"];
    });
    return { ...Object.fromEntries(texts), stop: this.stop.value };
  }

  restore(state) {
    for (const { name, start } of FIELDS) {
      const text = state[name] ?? String(start ?? "");
      this.inputs.get(name).value = text === "off" ? "" : text;
    }
    this.stop.value = state.stop ?? "";
  }
}

/** Up and Down change a number by its own step: without a step attribute, browsers would change it by 1. */
function nudge(event, input, { step, min, max, whole }, onChange) {
  const by = { ArrowUp: step, ArrowDown: -step }[event.key];
  if (by === undefined || whole) return;
  event.preventDefault();
  const next = Number(input.value || 0) + by;
  input.value = String(Number(Math.min(max, Math.max(min, next)).toFixed(4)));
  onChange();
}
