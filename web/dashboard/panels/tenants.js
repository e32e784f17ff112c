/** Draw what each tenant uses and is owed: share now, vTime, service, queue. */

import { formatAhead, formatRatio, formatService } from "../format.js";
import { h } from "../vdom.js";
import { colorOf, hasTenants, meter, note, panel, shorten, tenantName } from "./shared.js";

/**
 * @typedef {import("../store.js").State} State
 * @typedef {import("./shared.js").Actions} Actions
 */

const FEW = 10;
const LATELY_SAMPLES = 5;

/**
 * Return what part of the GPU lanes a tenant held in the last samples.
 *
 * @param {State} state
 * @param {string} tenant
 */
export function heldLately(state, tenant) {
  const lately = state.samples.slice(-LATELY_SAMPLES);
  if (lately.length === 0) return 0;
  const held = lately.map((each) => each.shares.find(([name]) => name === tenant)?.[1] ?? 0);
  return held.reduce((total, each) => total + each, 0) / lately.length;
}

/**
 * Put tenants with work first, who used most before the others, names at last.
 *
 * @param {State} state
 */
export function rankedTenants(state) {
  const tenants = state.overview?.tenants ?? [];
  const rank = (/** @type {import("../store.js").Tenant} */ each) => [
    Number(each.running + each.pending > 0),
    each.service_s.gpu ?? 0,
  ];
  return [...tenants].sort((a, b) => {
    const [busyA, usedA] = rank(a);
    const [busyB, usedB] = rank(b);
    return busyB - busyA || usedB - usedA || (a.tenant < b.tenant ? -1 : 1);
  });
}

/** @param {State} state @param {Actions} actions */
export function tenantsPanel(state, actions) {
  const overview = state.overview;
  if (!overview) return null;
  const { shown, button } = shorten(state, actions, "tenants", rankedTenants(state), FEW);
  const heads = [
    ["Tenant", ""],
    ["Share, last 10 s", "csl-share"],
    ["vTime", "csl-num csl-wide"],
    ["Ahead", "csl-num csl-mid"],
    ["GPU time", "csl-num csl-wide"],
    ["Runs", "csl-num"],
    ["Waits", "csl-num"],
  ];
  const table = h(
    "table",
    { class: "csl-table" },
    h("caption", { class: "csl-hidden" }, "Tenants, those with work first"),
    h("thead", null, h("tr", null, ...heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
    h("tbody", null, ...shown.map((each) => row(state, each))),
  );
  const hidden = overview.tenants_hidden;
  return panel(
    "tenants",
    hasTenants(state) ? "Tenants" : "Usage",
    null,
    h("div", { class: "csl-scroll" }, table),
    button,
    hidden > 0 && note(`${hidden} more tenants without work are not listed.`),
  );
}

/** @param {State} state @param {import("../store.js").Tenant} tenant */
function row(state, tenant) {
  const held = heldLately(state, tenant.tenant);
  const isIdle = tenant.running + tenant.pending === 0;
  return h(
    "tr",
    { key: tenant.tenant, class: isIdle ? "csl-idle" : null, "data-tenant": tenant.tenant },
    h("th", { scope: "row" }, tenantName(state, tenant.tenant), weightTag(tenant.weight)),
    h(
      "td",
      { class: "csl-share" },
      meter(formatRatio(held), [{ ratio: held, kind: "tenant", color: colorOf(state, tenant.tenant) }]),
      h("span", { class: "csl-figure" }, formatRatio(held)),
    ),
    h("td", { class: "csl-num csl-wide" }, formatService(tenant.v_time_s)),
    h("td", { class: "csl-num csl-mid" }, isIdle ? "–" : formatAhead(tenant.ahead_s)),
    h("td", { class: "csl-num csl-wide" }, formatService(tenant.service_s.gpu ?? 0)),
    h("td", { class: "csl-num" }, limited(tenant.running, tenant.limits.max_running)),
    h("td", { class: "csl-num" }, limited(tenant.pending, tenant.limits.max_queued)),
  );
}

/** @param {number} weight */
function weightTag(weight) {
  return weight !== 1 && h("span", { class: "csl-hint", title: `weight ${weight}` }, ` ×${weight}`);
}

/** @param {number} count @param {number | null} most */
function limited(count, most) {
  return most === null ? count.toLocaleString("en") : `${count.toLocaleString("en")} / ${most}`;
}
