/** Draw what ran in every lane of every worker over the last minute, coloured by tenant; by function where there is only one. */

import { formatCount, formatDuration } from "../format.js";
import { TIMELINE_S } from "../store.js";
import { h } from "../vdom.js";
import { strips } from "./bars.js";
import { colorOf, emptyState, familyOf, hasTenants, panel, tenantName } from "./shared.js";

/**
 * @typedef {import("../store.js").State} State
 * @typedef {import("./shared.js").Actions} Actions
 * @typedef {import("./bars.js").Bar} Bar
 * @typedef {import("./bars.js").Strip} Strip
 */

const ROW = 10;
const LEGEND = 10;

/** Longer bars have an edge; it would hide shorter ones. */
const WIDE_S = 0.6;

/** @param {State} state @param {Actions} actions */
export function timelinePanel(state, actions) {
  const overview = state.overview;
  if (!overview) return null;
  const base_s = Math.floor(overview.now_s / 100_000) * 100_000;
  const all = strips(state, base_s);
  const until = overview.now_s - base_s;
  if (all.length === 0) return panel("timeline", "Timeline", null, emptyState("No worker is there yet."));
  const times = ["60 s ago", "45", "30", "15", "now"].map((each) => h("span", null, each));
  return panel(
    "timeline",
    "Timeline",
    legend(state, all),
    h("div", { class: "csl-lanes" }, ...all.map((each) => strip(state, actions, each, until))),
    h("div", { class: "csl-times csl-lane-times", "aria-hidden": "true" }, ...times),
  );
}

/**
 * Tell what the colours are: tenants, or kinds of functions where there is one tenant only.
 *
 * @param {State} state @param {Strip[]} all
 */
function legend(state, all) {
  const calls = all.flatMap((each) => each.bars.map((bar) => bar.call));
  const isMany = hasTenants(state);
  const names = new Set(calls.map((call) => (isMany ? call.tenant : familyOf(call.function).family)));
  const shown = [...names].sort().slice(0, LEGEND);
  const items = shown.map((name) => {
    if (isMany) return h("li", { key: name }, tenantName(state, name));
    const style = { background: familyOf(name).color };
    return h("li", { key: name }, h("span", { class: "csl-swatch", style, "aria-hidden": "true" }), name);
  });
  const rest = names.size - shown.length;
  return h("ul", { class: "csl-legend" }, ...items, rest > 0 && h("li", { key: "" }, `and ${rest} more`));
}

/** @param {State} state @param {import("../store.js").Staying} call */
function barColor(state, call) {
  return hasTenants(state) ? colorOf(state, call.tenant) : familyOf(call.function).color;
}

/** @param {State} state @param {Actions} actions @param {Strip} one @param {number} until */
function strip(state, actions, one, until) {
  const height = one.rows * ROW;
  const bars = one.bars.filter((each) => each.to > until - TIMELINE_S);
  const byKey = new Map(bars.map((each) => [each.key, each]));
  const tell = (/** @type {Event} */ event, /** @type {Bar | undefined} */ bar) =>
    bar ? actions.showTip(event, barLines(state, bar)) : actions.hideTip();
  const picture = h(
    "svg",
    {
      viewBox: `${(until - TIMELINE_S).toFixed(2)} 0 ${TIMELINE_S} ${height}`,
      preserveAspectRatio: "none",
      style: { height: `${Math.max(18, one.rows * 12)}px` },
      role: "img",
      tabindex: "0",
      "aria-label": `${one.slot} ${one.lane}: ${spoken(bars)}`,
      onpointermove: (/** @type {PointerEvent} */ event) => tell(event, byKey.get(barKey(event.target))),
      onpointerdown: (/** @type {PointerEvent} */ event) => tell(event, byKey.get(barKey(event.target))),
      onpointerleave: actions.hideTip,
      onblur: actions.hideTip,
      onkeydown: (/** @type {KeyboardEvent} */ event) => walk(event, bars, tell),
    },
    ...bars.map((each) => barRect(state, each)),
  );
  return h(
    "div",
    { key: `${one.slot}/${one.lane}`, class: "csl-lane", "data-lane": `${one.slot}/${one.lane}` },
    h("span", { class: "csl-lane-name" }, h("b", null, one.slot), " ", one.lane),
    picture,
  );
}

/** @param {EventTarget | null} target */
function barKey(target) {
  return /** @type {Element | null} */ (target)?.getAttribute?.("data-bar") ?? "";
}

/** @param {State} state @param {Bar} bar */
function barRect(state, bar) {
  const { call } = bar;
  const kinds = ["csl-bar"];
  if (bar.to - bar.from > WIDE_S) kinds.push("csl-bar-wide");
  if (bar.isRunning) kinds.push("csl-bar-running");
  else if ("outcome" in call && call.outcome !== "done") kinds.push("csl-bar-failed");
  return h("rect", {
    key: bar.key,
    class: kinds.join(" "),
    "data-bar": bar.key,
    x: bar.from.toFixed(3),
    y: bar.row * ROW + 0.75,
    width: (bar.to - bar.from).toFixed(3),
    height: ROW - 1.5,
    style: { fill: barColor(state, call) },
  });
}

/**
 * Let the arrow keys go from bar to bar, and tell about the one they reach.
 *
 * @param {KeyboardEvent} event
 * @param {Bar[]} bars
 * @param {(event: Event, bar: Bar | undefined) => void} tell
 */
function walk(event, bars, tell) {
  const picture = /** @type {SVGElement} */ (event.currentTarget);
  if (event.key === "Escape") tell(event, undefined);
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (step === undefined || bars.length === 0) return;
  event.preventDefault();
  const now = bars.findIndex((each) => each.key === picture.dataset.at);
  const from = now < 0 ? (step < 0 ? bars.length : -1) : now;
  const next = bars[Math.max(0, Math.min(bars.length - 1, from + step))];
  picture.dataset.at = next.key;
  tell(event, next);
}

/** @param {Bar[]} bars */
function spoken(bars) {
  if (bars.length === 0) return "nothing ran in the last minute";
  const running = bars.filter((each) => each.isRunning).map((each) => each.call.function);
  const now = running.length > 0 ? `runs ${running.join(", ")}` : "idle";
  return `${now}; ${formatCount(bars.length, "entry", "entries")} in the last minute, arrow keys tell them`;
}

/**
 * Say all about a bar.
 *
 * @param {State} state
 * @param {Bar} bar
 */
export function barLines(state, bar) {
  const { call } = bar;
  const now_s = state.overview?.now_s ?? call.began_s;
  const rows = [
    ["Tenant", tenantName(state, call.tenant)],
    ["Node", call.node],
    ["Prompt", call.prompt_id],
    ["Worker", `${call.worker}, ${call.lane} lane`],
  ];
  if (!("ended_s" in call)) {
    rows.push(["Runs for", formatDuration(now_s - call.began_s)]);
  } else {
    const load = call.load_s >= 0.001 ? `, ${formatDuration(call.load_s)} of it loading` : "";
    rows.push(["Held", `${formatDuration(call.held_s)} in ${formatCount(call.calls, "call")}${load}`]);
    rows.push(["Charged", formatDuration(call.charged_s)]);
    rows.push(["Ended", `${formatDuration(now_s - call.ended_s)} ago${call.outcome === "done" ? "" : `: ${call.outcome}`}`]);
  }
  const told = rows.map(([label, text]) => h("div", null, h("dt", null, label), h("dd", null, text)));
  return [h("strong", null, call.function), h("dl", null, ...told)];
}
