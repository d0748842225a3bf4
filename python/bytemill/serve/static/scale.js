// Axes: a range of values → pixels, and the ticks between.

/** A linear or logarithmic axis from `low` to `high` over the pixels `start` to `end`. */
export function axis(low, high, start, end, log = false) {
  const map = log ? Math.log10 : (x) => x;
  const [from, to] = [map(low), map(high)];
  const span = to - from || 1;
  return {
    low,
    high,
    log,
    place: (x) => start + ((map(x) - from) / span) * (end - start),
    value: (pixel) => {
      const at = from + ((pixel - start) / (end - start)) * span;
      return log ? 10 ** at : at;
    },
    ticks: (n) => (log ? logTicks(low, high, n) : linearTicks(low, high, n)),
  };
}

/** Multiples of 1, 2 or 5 times a power of ten: about `n` of them. */
function linearTicks(low, high, n) {
  const rough = (high - low) / n;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= rough * 0.8);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  // Divided where the step is a fraction, so that a tick is 0.3 and not 0.30000000000000004.
  const down = Math.round(1 / step);
  return Array.from({ length: last - first + 1 }, (_, i) =>
    step < 1 ? (first + i) / down : (first + i) * step,
  );
}

function logTicks(low, high, n) {
  if (high / low < 8) return linearTicks(low, high, n);
  const decades = Math.log10(high / low);
  const digits = decades > n ? [1] : decades > n / 2 ? [1, 3] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(decades / n));
  const ticks = [];
  const first = Math.floor(Math.log10(low));
  for (let power = first; power <= Math.log10(high); power += every) {
    for (const digit of digits) {
      const tick = power < 0 ? digit / 10 ** -power : digit * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

/** The least and the greatest of finite values, with a margin of some per cent; null if none. */
export function extent(values, { log = false, margin = 0 } = {}) {
  let [low, high] = [Infinity, -Infinity];
  for (const x of values) {
    if (!Number.isFinite(x) || (log && x <= 0)) continue;
    if (x < low) low = x;
    if (x > high) high = x;
  }
  if (low > high) return null;
  // Averages of a constant differ by rounding.
  if (high - low <= 1e-6 * Math.abs(high)) {
    const around = Math.abs(low) * 0.1 || 1;
    return log ? [low / 1.1, low * 1.1] : [low - around, high + around];
  }
  if (log) {
    const factor = (high / low) ** margin;
    return [low / factor, high * factor];
  }
  const room = (high - low) * margin;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}
