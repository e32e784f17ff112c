/** Draw the figures that an operator looks at first. */

import { formatCount, formatRatio } from "../format.js";
import { h } from "../vdom.js";

/**
 * Add up what the tiles show.
 *
 * @param {import("../store.js").State} state
 */
export function figures(state) {
  const overview = state.overview;
  const tenants = overview?.tenants ?? [];
  const workers = overview?.workers ?? [];
  const sample = state.samples.at(-1);
  return {
    running: sum(tenants.map((each) => each.running)),
    pending: sum(tenants.map((each) => each.pending)),
    busyTenants: tenants.filter((each) => each.running + each.pending > 0).length,
    readyWorkers: workers.filter((each) => each.state === "ready" || each.state === "busy").length,
    workers: workers.length,
    troubled: workers.filter((each) => each.state === "lost").length,
    starting: workers.filter((each) => each.state === "starting").length,
    heldRatio: sample && sample.lanes > 0 ? heldRatio(sample) : null,
  };
}

/** @param {import("../store.js").Sample} sample */
export function heldRatio(sample) {
  return Math.min(1, sample.others + sum(sample.shares.map(([, held]) => held)));
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, each) => total + each, 0);
}

/** @param {import("../store.js").State} state */
export function summaryPanel(state) {
  const all = figures(state);
  const isOperator = state.overview?.is_operator ?? false;
  const trouble = all.troubled ? `${all.troubled} lost` : all.starting ? `${all.starting} starting` : "all there";
  return h(
    "section",
    { key: "summary", class: "csl-tiles", "aria-label": "Summary" },
    tile("Running", all.running.toLocaleString("en"), formatCount(all.pending, "prompt waits", "prompts wait")),
    tile(
      isOperator ? "GPU lanes in use" : "Your share now",
      all.heldRatio === null ? "–" : formatRatio(all.heldRatio),
      "last 2 s",
    ),
    tile("Workers", `${all.readyWorkers} / ${all.workers}`, trouble, all.troubled > 0),
    isOperator && tile("Active tenants", String(all.busyTenants), `of ${tenantCount(state)}`),
  );
}

/** @param {import("../store.js").State} state */
function tenantCount(state) {
  return (state.overview?.tenants.length ?? 0) + (state.overview?.tenants_hidden ?? 0);
}

/** @param {string} label @param {string} figure @param {string} hint @param {boolean} [isAlarming] */
function tile(label, figure, hint, isAlarming = false) {
  return h(
    "div",
    { class: "csl-tile", "data-tile": label },
    h("span", { class: "csl-label" }, label),
    h("strong", null, figure),
    h("span", { class: isAlarming ? "csl-hint csl-bad" : "csl-hint" }, hint),
  );
}
