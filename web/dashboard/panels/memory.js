/**
 * Turn what a worker tells of its memory into shapes. Pure.
 *
 * @typedef {import("../store.js").Model} Model
 * @typedef {"away" | "resident" | "empty" | "prefix"} LayerKind
 */

/**
 * Return the parts of a model's strip of layers, in the order in which they are painted.
 *
 * Layers that have no weights are neither in memory nor away. The prefix is a line below the layers.
 *
 * @param {Model} model
 * @returns {{kind: LayerKind, first: number, end: number}[]}
 */
export function layerRects(model) {
  const within = (/** @type {[number, number]} */ [first, end]) => ({
    first: Math.max(0, first),
    end: Math.min(model.layers, end),
  });
  const runs = (/** @type {LayerKind} */ kind, /** @type {[number, number][]} */ list) =>
    list.map(within).map((run) => ({ kind, ...run }));
  const prefix = Math.min(model.layers, model.prefix);
  return [
    ...runs("away", [[0, model.layers]]),
    ...runs("resident", model.resident),
    ...runs("empty", model.empty),
    ...(prefix > 0 ? runs("prefix", [[0, prefix]]) : []),
  ].filter(({ first, end }) => end > first);
}

/**
 * Put models in use first; otherwise they stay as told, the most recently used first.
 *
 * @param {Model[]} models
 */
export function shownModels(models) {
  return [...models].sort((a, b) => Number(b.is_in_use) - Number(a.is_in_use));
}

/**
 * Name a model as people do: its file without extension, and what was put on top of it.
 *
 * @param {Model} model
 */
export function shortModelName(model) {
  const name = model.name.replace(/\.(safetensors|ckpt|pt|pth|bin|sft)$/i, "");
  return model.variant ? `${name} + ${model.variant}` : name;
}

/**
 * Split the budget of a device into weights, what results claim, and the rest.
 *
 * @param {{budget_bytes: number, used_bytes: number, claimed_bytes: number}} device
 */
export function weightsParts({ budget_bytes, used_bytes, claimed_bytes }) {
  const whole = Math.max(1, budget_bytes);
  return [
    { ratio: used_bytes / whole, kind: "weights" },
    { ratio: claimed_bytes / whole, kind: "claimed" },
  ];
}
