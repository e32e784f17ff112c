/**
 * Turn stretches and running calls into the bars of a timeline. Pure.
 *
 * A lane of a worker's slot is a strip; x is seconds, counted from a fixed moment, so that bars stay where they are
 * and only the window moves. Calls that overlap are in rows below each other.
 *
 * @typedef {import("../store.js").State} State
 * @typedef {import("../store.js").Stretch} Stretch
 * @typedef {import("../store.js").Staying} Staying
 * @typedef {{key: string, row: number, from: number, to: number, isRunning: boolean, call: Staying | Stretch}} Bar
 * @typedef {{slot: string, lane: string, rows: number, bars: Bar[]}} Strip
 */

import { freeRow, TIMELINE_S } from "../store.js";

/** So many bars of a strip are drawn, the newest. */
export const BARS = 300;

/** A bar is at least so long that it can be seen. */
const LEAST_S = 0.15;

/** A call goes on in the row of the stretch before it if it began so soon after its end. */
const SAME_S = 0.15;

/** @type {Record<string, number>} */
const LANE_ORDER = { gpu: 0, cpu: 1 };

/**
 * Return the slot of a worker's incarnation: `w0` of `w0.3`.
 *
 * @param {string} worker
 */
export function slotOf(worker) {
  return worker.replace(/\.\d+$/, "");
}

/**
 * Return the strips of all workers that are there or ran something, GPU lanes first within a worker.
 *
 * @param {State} state
 * @param {number} base_s  x is 0 at this time
 * @returns {Strip[]}
 */
export function strips(state, base_s) {
  /** @type {Map<string, Strip>} */
  const found = new Map();
  const strip = (/** @type {string} */ slot, /** @type {string} */ lane) => {
    const key = `${slot}/${lane}`;
    if (!found.has(key)) found.set(key, { slot, lane, rows: 1, bars: [] });
    return /** @type {Strip} */ (found.get(key));
  };
  for (const worker of state.overview?.workers ?? []) strip(worker.slot, "gpu");
  for (const bar of allBars(state, base_s)) {
    const one = strip(slotOf(bar.call.worker), bar.call.lane);
    one.bars.push(bar);
    one.rows = Math.max(one.rows, bar.row + 1);
  }
  for (const one of found.values()) one.bars = one.bars.sort((a, b) => a.from - b.from).slice(-BARS);
  return [...found.values()].sort(byPlace);
}

/** @param {State} state @param {number} base_s @returns {Bar[]} */
function allBars(state, base_s) {
  const now_s = state.overview?.now_s ?? base_s;
  const from_s = now_s - TIMELINE_S;
  const ended = state.stretches.map((each) => ({
    key: String(each.id),
    row: each.row ?? 0,
    from: clip(each.began_s, from_s) - base_s,
    to: Math.max(each.ended_s, each.began_s + LEAST_S) - base_s,
    isRunning: false,
    call: each,
  }));
  const placed = [...state.stretches];
  const running = (state.overview?.running ?? []).map((each) => {
    const row = rowOf(placed, each);
    placed.push({ ...each, id: 0, row, ended_s: Infinity, calls: 1, held_s: 0, load_s: 0, charged_s: 0, outcome: "" });
    return {
      key: `run ${each.worker} ${each.lane} ${row} ${each.prompt_id} ${each.node} ${each.function}`,
      row,
      from: clip(each.began_s, from_s) - base_s,
      to: Math.max(now_s, each.began_s + LEAST_S) - base_s,
      isRunning: true,
      call: each,
    };
  });
  return [...ended, ...running];
}

/** @param {Stretch[]} placed @param {Staying} call */
function rowOf(placed, call) {
  const before = placed.findLast(
    (each) =>
      each.worker === call.worker &&
      each.lane === call.lane &&
      each.tenant === call.tenant &&
      each.prompt_id === call.prompt_id &&
      each.node === call.node &&
      each.function === call.function &&
      Math.abs(call.began_s - each.ended_s) < SAME_S,
  );
  return before?.row ?? freeRow(placed, call);
}

/** @param {number} time_s @param {number} from_s */
function clip(time_s, from_s) {
  return Math.max(time_s, from_s - 1);
}

/** @param {Strip} a @param {Strip} b */
function byPlace(a, b) {
  return (
    a.slot.localeCompare(b.slot, "en", { numeric: true }) || (LANE_ORDER[a.lane] ?? 2) - (LANE_ORDER[b.lane] ?? 2)
  );
}
