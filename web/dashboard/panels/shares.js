/** Draw who held the GPU lanes and who is ahead, over the last ten minutes. */

import { formatAge, formatAhead, formatRatio } from "../format.js";
import { SHARES_S } from "../store.js";
import { h } from "../vdom.js";
import {
  aheadSeries,
  HEIGHT,
  linePaths,
  nearest,
  positions,
  rangeOf,
  shareSeries,
  stackedPaths,
  WIDTH,
} from "./charts.js";
import { colorOf, emptyState, hasTenants, panel, tenantName } from "./shared.js";

/**
 * @typedef {import("../store.js").State} State
 * @typedef {import("./shared.js").Actions} Actions
 * @typedef {import("./charts.js").Series} Series
 */

/** @param {State} state @param {Actions} actions */
export function sharesPanel(state, actions) {
  const overview = state.overview;
  const isMany = hasTenants(state);
  const isOwn = overview !== null && !overview.is_operator;
  const name = isMany ? "Fair sharing" : "GPU use";
  if (!overview || state.samples.every((each) => each.shares.length === 0)) {
    return panel("shares", name, null, emptyState("No GPU lane was used in the last ten minutes."));
  }
  const xs = positions(state.samples, overview.now_s);
  const series = shareSeries(state.samples);
  const step = (overview.sample_s / SHARES_S) * WIDTH * 1.5;
  const ahead = aheadSeries(state.samples);
  const share = chart(state, actions, {
    title: isOwn ? "Your share of the GPU lanes" : isMany ? "Share of the GPU lanes" : "GPU lanes in use",
    label: describe(series, "held", (points) => formatRatio(points.at(-1) ?? 0)),
    ticks: [
      { text: "100 %", at: 0 },
      { text: "50 %", at: 0.5 },
      { text: "0", at: 1 },
    ],
    shapes: stackedPaths(series, xs, step).map((d, at) => area(state, series[at], d)),
    xs,
    lines: (at) => sampleLines(state, at),
  });
  const range = rangeOf(ahead);
  const zero = range.most / (range.most - range.least);
  const lead = chart(state, actions, {
    title: "vTime ahead of the lane's virtual time",
    label: describe(ahead, "ahead", (points) => formatAhead(points.at(-1) ?? 0)),
    ticks: [
      { text: `${range.most} s`, at: 0 },
      { text: "0 s", at: zero },
      range.least < 0 && { text: `−${-range.least} s`, at: 1 },
    ],
    shapes: [
      h("line", { key: "zero", class: "csl-zero", x1: "0", x2: WIDTH, y1: zero * HEIGHT, y2: zero * HEIGHT }),
      ...linePaths(ahead, xs, range).map((d, at) => line(state, ahead[at], d)),
    ],
    xs,
    lines: (at) => sampleLines(state, at),
  });
  const charts = isMany || !overview.is_operator ? [share, lead] : [share]; // alone, nobody is ahead of anybody
  return panel("shares", name, legend(state, series), h("div", { class: "csl-charts" }, ...charts));
}

/** @param {State} state @param {Series} one @param {string} d */
function area(state, one, d) {
  return h("path", { key: one.tenant ?? "", d, class: "csl-area", style: { fill: colorOf(state, one.tenant) } });
}

/** @param {State} state @param {Series} one @param {string} d */
function line(state, one, d) {
  return h("path", { key: one.tenant ?? "", d, class: "csl-line", style: { stroke: colorOf(state, one.tenant) } });
}

/** @param {Series[]} series @param {string} word @param {(points: number[]) => string} last */
function describe(series, word, last) {
  const told = series.map(({ tenant, points }) => `${tenant ?? "others"} ${last(points)}`);
  return `Last ten minutes, now ${word}: ${told.join(", ")}`;
}

/** @param {State} state @param {Series[]} series */
function legend(state, series) {
  const isMany = hasTenants(state);
  return (
    isMany && h("ul", { class: "csl-legend" }, ...series.map(({ tenant }) => h("li", null, tenantName(state, tenant))))
  );
}

/**
 * @param {State} state
 * @param {Actions} actions
 * @param {{title: string, label: string, ticks: ({text: string, at: number} | false)[], shapes: import("../vdom.js").Child[], xs: number[],
 *   lines: (at: number) => import("../vdom.js").Child[]}} spec
 */
function chart(state, actions, { title, label, ticks, shapes, xs, lines }) {
  /** @param {PointerEvent} event */
  const point = (event) => {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    const at = nearest(xs, ((event.clientX - box.left) / Math.max(1, box.width)) * WIDTH);
    if (at >= 0) actions.showTip(event, lines(at));
  };
  const picture = h(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${title}. ${label}`,
      onpointermove: point,
      onpointerdown: point,
      onpointerleave: actions.hideTip,
    },
    h("line", { class: "csl-grid", x1: "0", x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
    ...shapes,
  );
  return h(
    "figure",
    { key: title, class: "csl-chart" },
    h("figcaption", null, title),
    h(
      "div",
      { class: "csl-plot" },
      h("div", { class: "csl-ticks", "aria-hidden": "true" }, ...ticks.map((each) => each && tick(each))),
      picture,
    ),
    h(
      "div",
      { class: "csl-times", "aria-hidden": "true" },
      ...["10 min ago", "5 min", "now"].map((each) => h("span", null, each)),
    ),
  );
}

/** @param {{text: string, at: number}} spec */
function tick({ text, at }) {
  return h("span", { style: { top: `${(at * 100).toFixed(1)}%` } }, text);
}

/** @param {State} state @param {number} at */
function sampleLines(state, at) {
  const sample = state.samples[at];
  if (!sample) return [];
  const ago = formatAge((state.overview?.now_s ?? sample.at_s) - sample.at_s);
  const ranked = [...sample.shares].sort((a, b) => b[1] - a[1]).slice(0, 12);
  const rows = ranked.map(([tenant, held, ahead_s]) =>
    h("tr", null, h("td", null, tenantName(state, tenant)), h("td", null, formatRatio(held)), h("td", null, formatAhead(ahead_s))),
  );
  const rest = sample.shares.length - ranked.length;
  return [
    h("strong", null, `${ago} ago`),
    h(
      "table",
      null,
      h("tbody", null, h("tr", null, h("th", null, "Tenant"), h("th", null, "Share"), h("th", null, "Ahead")), ...rows),
    ),
    rest > 0 && h("span", { class: "csl-hint" }, `and ${rest} more`),
  ];
}
