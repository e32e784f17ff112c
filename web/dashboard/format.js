/** Write quantities for people. Pure; every function takes a number in the unit that its name says. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/**
 * Write a size, for example 1536 as "1.5 KiB".
 *
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  let unit = 0;
  let amount = bytes;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(amount) ? amount : amount.toFixed(amount < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

/**
 * Write a duration with about three digits, for example "12 ms", "1.24 s", "3 min 5 s", "2 h 4 min".
 *
 * @param {number} seconds
 */
export function formatDuration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${formatDuration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(whole / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * Write an age in whole seconds, so that a list of ages does not flicker.
 *
 * @param {number} seconds
 */
export function formatAge(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return whole < 60 ? `${whole} s` : formatDuration(whole);
}

/**
 * Write seconds of service with one digit, grouped: "1,234.5 s".
 *
 * @param {number} seconds
 */
export function formatService(seconds) {
  return `${seconds.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`;
}

/**
 * Write how far ahead a tenant is, with its sign: "+1.2 s".
 *
 * @param {number} seconds
 */
export function formatAhead(seconds) {
  const rounded = Math.abs(seconds).toFixed(1);
  if (rounded === "0.0") return "0.0 s";
  return `${seconds < 0 ? "−" : "+"}${rounded} s`;
}

/**
 * Write a part of one as "42 %".
 *
 * @param {number} ratio
 */
export function formatRatio(ratio) {
  const percent = ratio * 100;
  if (percent > 0 && percent < 1) return "< 1 %";
  return `${Math.round(percent)} %`;
}

/**
 * Write a count with its noun: "1 prompt", "2 prompts".
 *
 * @param {number} count @param {string} noun @param {string} [plural]
 */
export function formatCount(count, noun, plural = `${noun}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : plural}`;
}
