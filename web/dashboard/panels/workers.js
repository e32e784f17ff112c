/** Draw the workers: state, device memory by model, layers of each model, arena, host memory, counters. */

import { formatBytes, formatCount, formatDuration, formatRatio } from "../format.js";
import { h } from "../vdom.js";
import { layerRects, shortModelName, shownModels, weightsParts } from "./memory.js";
import { emptyState, meter, panel, shorten } from "./shared.js";

/**
 * @typedef {import("../store.js").State} State
 * @typedef {import("../store.js").Worker} Worker
 * @typedef {import("../store.js").Memory} Memory
 * @typedef {import("../store.js").Model} Model
 * @typedef {import("./shared.js").Actions} Actions
 */

const FEW_MODELS = 4;
const FEW_MODELS_OF_MANY = 2;
const MANY_WORKERS = 4;

/** @type {Record<string, string>} */
const STATES = { starting: "starting", ready: "ready", busy: "busy", lost: "lost, restarting" };

/** @param {State} state @param {Actions} actions */
export function workersPanel(state, actions) {
  const workers = state.overview?.workers;
  if (!workers) return null;
  const hint = "The first one needs some seconds to load its libraries.";
  if (workers.length === 0) return panel("workers", "Workers", null, emptyState("No worker yet.", hint));
  const cards = workers.map((each) => workerCard(state, actions, each));
  return panel("workers", "Workers", key(workers), h("div", { class: "csl-cards" }, ...cards));
}

/** @param {Worker[]} workers */
function key(workers) {
  if (!workers.some((each) => each.memory?.models?.length)) return null;
  const entries = [
    ["resident", "in memory"],
    ["away", "not in memory"],
    ["empty", "no weights"],
    ["prefix", "prefix that hides loading"],
  ];
  const items = entries.map(([kind, text]) => h("li", null, h("span", { class: `csl-cell csl-cell-${kind}` }), text));
  return h("ul", { class: "csl-legend", "aria-label": "Layers" }, ...items);
}

/** @param {State} state @param {Actions} actions @param {Worker} worker */
export function workerCard(state, actions, worker) {
  const isThere = worker.state === "ready" || worker.state === "busy";
  return h(
    "article",
    { key: worker.slot, class: `csl-card csl-card-${worker.state}`, "data-worker": worker.slot, "aria-label": `Worker ${worker.slot}` },
    h(
      "header",
      null,
      h("h3", null, worker.slot),
      h("span", { class: `csl-state csl-state-${worker.state}` }, STATES[worker.state] ?? worker.state),
      h("span", { class: "csl-hint csl-clip csl-device", title: worker.device_name }, worker.device_name),
    ),
    isThere
      ? h(
          "div",
          { class: "csl-card-body" },
          figures(worker),
          worker.memory?.models && models(state, actions, worker, worker.memory),
        )
      : h("p", { class: "csl-note" }, absence(worker)),
    isThere && worker.memory && counters(worker, worker.memory),
  );
}

/** @param {Worker} worker */
function absence(worker) {
  if (worker.state === "starting") return "Loads its libraries and will join in some seconds.";
  return "Its process has ended. Another one takes its place; what it ran runs elsewhere.";
}

/** @param {Worker} worker */
function figures(worker) {
  const { memory } = worker;
  const rows = [];
  if (memory) rows.push(weights(memory.device));
  else if (worker.weights_bytes > 0) rows.push(plain("Weights", formatBytes(worker.weights_bytes)));
  if (worker.device_total_bytes > 0) {
    const used = worker.device_total_bytes - worker.device_free_bytes;
    rows.push(filled("Device", used, worker.device_total_bytes, "device"));
  }
  if (memory && memory.host.budget_bytes > 0) {
    const count = formatCount(memory.host.models, "model");
    rows.push(filled("Host tier", memory.host.used_bytes, memory.host.budget_bytes, "host", count));
  }
  if (worker.arena_bytes > 0) {
    const blocks = memory ? arenaHint(memory.arena) : "";
    rows.push(filled("Arena", worker.arena_used_bytes, worker.arena_bytes, "arena", blocks));
  }
  rows.push(plain("Process", formatBytes(worker.resident_bytes)));
  return h("dl", { class: "csl-figures" }, ...rows);
}

/** @param {Memory["arena"]} arena */
function arenaHint(arena) {
  const blocks = formatCount(arena.blocks, "block");
  return `${blocks}, largest free ${formatBytes(arena.largest_free_bytes)}`;
}

/** @param {Memory["device"]} device */
function weights(device) {
  const whole = formatBytes(device.budget_bytes);
  const text = `${formatBytes(device.used_bytes)} of ${whole}`;
  const claimed = device.claimed_bytes > 0 ? `${formatBytes(device.claimed_bytes)} claimed by results` : "";
  return entry("Weights", meter(`${text} ${claimed}`, weightsParts(device)), text, claimed);
}

/** @param {string} label @param {number} used @param {number} whole @param {string} kind @param {string} [hint] */
function filled(label, used, whole, kind, hint = "") {
  const text = `${formatBytes(used)} of ${formatBytes(whole)}`;
  return entry(label, meter(`${formatRatio(used / whole)} used`, [{ ratio: used / whole, kind }]), text, hint);
}

/** @param {string} label @param {string} text */
function plain(label, text) {
  return entry(label, null, text, "");
}

/** @param {string} label @param {import("../vdom.js").Child} bar @param {string} text @param {string} hint */
function entry(label, bar, text, hint) {
  const said = h("span", { class: "csl-said" }, text, hint && h("span", { class: "csl-hint" }, ` · ${hint}`));
  return h("div", { key: label, class: "csl-entry" }, h("dt", null, label), h("dd", null, bar, said));
}

/** @param {State} state @param {Actions} actions @param {Worker} worker @param {Memory} memory */
function models(state, actions, worker, memory) {
  const list = shownModels(memory.models ?? []);
  if (list.length === 0) return h("p", { class: "csl-note" }, "No model is in memory.");
  const isMany = (state.overview?.workers.length ?? 0) > MANY_WORKERS;
  const few = isMany ? FEW_MODELS_OF_MANY : FEW_MODELS;
  const { shown, button } = shorten(state, actions, `models ${worker.slot}`, list, few);
  const more = memory.more_models > 0 && h("li", { class: "csl-hint" }, `and ${formatCount(memory.more_models, "more model")}`);
  return h("div", null, h("ul", { class: "csl-models" }, ...shown.map(modelRow), more), button);
}

/** @param {Model} model @param {number} place */
function modelRow(model, place) {
  const resident = model.resident.reduce((count, [first, end]) => count + end - first, 0);
  const empty = model.empty.reduce((count, [first, end]) => count + end - first, 0);
  const whole = model.layers - empty;
  const size = `${formatBytes(model.resident_bytes)} of ${formatBytes(model.total_bytes)}`;
  const label = `${resident} of ${whole} layers in memory, ${size}, prefix of ${model.prefix}`;
  const rects = layerRects(model).map(({ kind, first, end }) =>
    h("rect", { class: `csl-layer-${kind}`, x: first, y: kind === "prefix" ? 7 : 0, width: end - first, height: kind === "prefix" ? 1.5 : 6 }),
  );
  const strip = h(
    "svg",
    { class: "csl-strip", viewBox: `0 0 ${Math.max(1, model.layers)} 8.5`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    ...rects,
  );
  const title = [model.name, model.kind, model.variant].filter(Boolean).join(" · ");
  return h(
    "li",
    { key: `${place} ${title}`, title: `${title}: ${label}` },
    h(
      "div",
      { class: "csl-model" },
      h("span", { class: model.is_in_use ? "csl-dot csl-dot-on" : "csl-dot" }),
      h("span", { class: "csl-kind" }, model.kind),
      h("span", { class: "csl-clip" }, shortModelName(model)),
      model.is_in_use && h("span", { class: "csl-tag" }, "in use"),
      h("span", { class: "csl-hint csl-size" }, size),
    ),
    strip,
  );
}

/** @param {Worker} worker @param {Memory} memory */
function counters(worker, memory) {
  const { counters: counted } = memory;
  const wanted = counted.resident_layers + counted.host_layers + counted.disk_layers;
  const parts = [];
  if (wanted > 0) parts.push(`${formatRatio(counted.resident_layers / wanted)} of layers found in memory`);
  if (counted.disk_bytes > 0) parts.push(`${formatBytes(counted.disk_bytes)} read from files`);
  if (counted.host_bytes > 0) parts.push(`${formatBytes(counted.host_bytes)} from the host tier`);
  if (counted.evicted_layers > 0) parts.push(`${formatCount(counted.evicted_layers, "layer")} evicted`);
  if (counted.fetched_bytes > 0) parts.push(`${formatBytes(counted.fetched_bytes)} from other workers`);
  if (memory.link_s !== null) parts.push(`link ${formatDuration(memory.link_s)}`);
  if (worker.restarts > 0) parts.push(formatCount(worker.restarts, "restart"));
  return parts.length > 0 && h("p", { class: "csl-note" }, parts.join(" · "));
}
