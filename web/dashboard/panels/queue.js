/** Draw the prompts that run and wait, each with its age; own ones can be cancelled. */

import { formatAge } from "../format.js";
import { h } from "../vdom.js";
import { emptyState, hasTenants, note, panel, shortId, shorten, tenantName } from "./shared.js";

/**
 * @typedef {import("../store.js").State} State
 * @typedef {import("../store.js").Prompt} Prompt
 * @typedef {import("./shared.js").Actions} Actions
 */

const FEW = 12;

/**
 * Count the prompts that the list does not hold.
 *
 * @param {State} state
 */
export function unlisted(state) {
  const tenants = state.overview?.tenants ?? [];
  const total = tenants.reduce((count, each) => count + each.running + each.pending, 0);
  return Math.max(0, total - (state.overview?.queue.length ?? 0));
}

/** @param {State} state @param {Actions} actions */
export function queuePanel(state, actions) {
  const overview = state.overview;
  if (!overview) return null;
  const prompts = [...overview.queue].sort((a, b) => Number(b.status === "running") - Number(a.status === "running"));
  if (prompts.length === 0) return panel("queue", "Queue", null, emptyState("Nothing waits and nothing runs."));
  const { shown, button } = shorten(state, actions, "queue", prompts, FEW);
  const isMany = hasTenants(state);
  const heads = [
    h("th", { scope: "col" }, "State"),
    isMany && h("th", { scope: "col" }, "Tenant"),
    h("th", { scope: "col" }, "Prompt"),
    h("th", { scope: "col" }, "Node"),
    h("th", { scope: "col", class: "csl-num" }, "For"),
    h("th", { scope: "col" }, h("span", { class: "csl-hidden" }, "Actions")),
  ];
  const table = h(
    "table",
    { class: "csl-table" },
    h("caption", { class: "csl-hidden" }, "Prompts that run or wait"),
    h("thead", null, h("tr", null, ...heads)),
    h("tbody", null, ...shown.map((each) => row(state, actions, each, isMany))),
  );
  const rest = unlisted(state);
  return panel(
    "queue",
    "Queue",
    null,
    h("div", { class: "csl-scroll" }, table),
    button,
    rest > 0 && note(`${rest.toLocaleString("en")} more wait behind these.`),
  );
}

/** @param {State} state @param {Actions} actions @param {Prompt} prompt @param {boolean} isMany */
function row(state, actions, prompt, isMany) {
  const now_s = state.overview?.now_s ?? 0;
  const isRunning = prompt.status === "running";
  const since_s = isRunning ? (prompt.started_s ?? prompt.created_s) : prompt.created_s;
  return h(
    "tr",
    { key: `${prompt.tenant}/${prompt.prompt_id}`, "data-prompt": prompt.prompt_id },
    h("td", null, h("span", { class: `csl-state csl-state-${prompt.status}` }, isRunning ? "runs" : "waits")),
    isMany && h("td", null, tenantName(state, prompt.tenant)),
    h("td", null, shortId(prompt.prompt_id)),
    h("td", null, h("span", { class: "csl-clip csl-node" }, prompt.node ?? "–")),
    h("td", { class: "csl-num" }, formatAge(now_s - since_s)),
    h("td", { class: "csl-action" }, prompt.tenant === state.overview?.tenant && cancelButton(state, actions, prompt)),
  );
}

/** @param {State} state @param {Actions} actions @param {Prompt} prompt */
function cancelButton(state, actions, prompt) {
  const isUnderWay = state.cancelling.has(prompt.prompt_id);
  return h(
    "button",
    {
      type: "button",
      class: "csl-button",
      disabled: isUnderWay,
      "aria-label": `Cancel prompt ${prompt.prompt_id}`,
      onclick: () => actions.cancel(prompt.prompt_id),
    },
    isUnderWay ? "Stopping" : "Cancel",
  );
}
