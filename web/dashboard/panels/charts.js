/**
 * Turn samples into the shapes of two charts: who held the GPU lanes, and who is ahead. Pure.
 *
 * A chart is WIDTH wide for the last ten minutes and HEIGHT high; the page stretches it to the room there is.
 *
 * @typedef {import("../store.js").Sample} Sample
 * @typedef {{tenant: string | null, points: number[], isThere: boolean[]}} Series  tenant null: all others
 */

import { SHARES_S } from "../store.js";

export const WIDTH = 1000;
export const HEIGHT = 100;
export const SERIES = 8;

/**
 * Return the series of a chart, those that held most at the bottom, the others added up on top.
 *
 * @param {Sample[]} samples
 * @param {number} [limit]  so many tenants have a series of their own
 * @returns {Series[]}
 */
export function shareSeries(samples, limit = SERIES) {
  const ranked = rank(samples).slice(0, limit);
  const places = new Map(ranked.map((tenant, place) => [tenant, place]));
  const series = [...ranked, null].map((tenant) => ({ tenant, ...blank(samples.length) }));
  samples.forEach((sample, at) => {
    series[ranked.length].points[at] += sample.others;
    for (const [tenant, held] of sample.shares) {
      const one = series[places.get(tenant) ?? ranked.length];
      one.points[at] += held;
      one.isThere[at] = true;
    }
  });
  const others = series[ranked.length];
  return others.points.some((point) => point > 0) ? series : series.slice(0, -1);
}

/**
 * Return who is ahead by how much, of the tenants that held most; points are seconds.
 *
 * @param {Sample[]} samples
 * @param {number} [limit]
 * @returns {Series[]}
 */
export function aheadSeries(samples, limit = SERIES) {
  const ranked = rank(samples).slice(0, limit);
  const places = new Map(ranked.map((tenant, place) => [tenant, place]));
  const series = ranked.map((tenant) => ({ tenant, ...blank(samples.length) }));
  samples.forEach((sample, at) => {
    for (const [tenant, , ahead_s] of sample.shares) {
      const place = places.get(tenant);
      if (place === undefined) continue;
      series[place].points[at] = ahead_s;
      series[place].isThere[at] = true;
    }
  });
  return series;
}

/** @param {number} length */
function blank(length) {
  return { points: new Array(length).fill(0), isThere: new Array(length).fill(false) };
}

/**
 * List the tenants, who held most first; those that held as much by name, so that a chart does not jump.
 *
 * @param {Sample[]} samples
 */
function rank(samples) {
  /** @type {Map<string, number>} */
  const held = new Map();
  for (const sample of samples) {
    for (const [tenant, ratio] of sample.shares) held.set(tenant, (held.get(tenant) ?? 0) + ratio);
  }
  return [...held].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([tenant]) => tenant);
}

/**
 * Return where each sample stands, from 0 (ten minutes ago) to WIDTH (now).
 *
 * @param {Sample[]} samples
 * @param {number} now_s
 */
export function positions(samples, now_s) {
  return samples.map((sample) => round((1 - (now_s - sample.at_s) / SHARES_S) * WIDTH));
}

/**
 * Return the outlines of series stacked on each other; a full lane reaches the top.
 *
 * A sample tells of the time before it, so each is a step that ends at its place.
 *
 * @param {Series[]} series
 * @param {number[]} xs
 * @param {number} step  width of one sample
 * @returns {string[]}
 */
export function stackedPaths(series, xs, step) {
  const base = xs.map(() => 0);
  return series.map(({ points }) => {
    const upper = [];
    const lower = [];
    xs.forEach((x, at) => {
      const from = round(Math.max(0, at > 0 ? Math.max(xs[at - 1], x - step) : x - step));
      const bottom = level(base[at]);
      base[at] += points[at];
      const top = level(base[at]);
      upper.push(`${from},${top}`, `${x},${top}`);
      lower.push(`${from},${bottom}`, `${x},${bottom}`);
    });
    return upper.length ? `M${upper.join("L")}L${lower.reverse().join("L")}Z` : "";
  });
}

/** @param {number} ratio */
function level(ratio) {
  return round(HEIGHT * (1 - Math.min(1, ratio)));
}

/**
 * Return lines of series between two levels; a line has gaps where its tenant had nothing to do.
 *
 * @param {Series[]} series
 * @param {number[]} xs
 * @param {{least: number, most: number}} range
 * @returns {string[]}
 */
export function linePaths(series, xs, { least, most }) {
  return series.map(({ points, isThere }) => {
    let path = "";
    xs.forEach((x, at) => {
      if (!isThere[at]) return;
      const y = round(HEIGHT * (1 - (points[at] - least) / (most - least)));
      path += `${at > 0 && isThere[at - 1] ? "L" : "M"}${x},${y}`;
    });
    return path;
  });
}

/**
 * Return round limits around all points of series, zero among them.
 *
 * @param {Series[]} series
 */
export function rangeOf(series) {
  const all = series.flatMap(({ points, isThere }) => points.filter((_, at) => isThere[at]));
  const reach = Math.max(1, ...all.map(Math.abs));
  const unit = 10 ** Math.floor(Math.log10(reach));
  const most = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= reach) ?? reach;
  const owed = Math.max(0, -Math.min(0, ...all));
  const step = most / 4;
  return { least: owed > 0 ? -Math.ceil(owed / step) * step : 0, most };
}

/**
 * Return the number of the sample nearest to a place, -1 if there is none.
 *
 * @param {number[]} xs  ascending
 * @param {number} x
 */
export function nearest(xs, x) {
  let best = -1;
  xs.forEach((each, at) => {
    if (best < 0 || Math.abs(each - x) < Math.abs(xs[best] - x)) best = at;
  });
  return best;
}

/** @param {number} number */
function round(number) {
  return Math.round(number * 10) / 10;
}
