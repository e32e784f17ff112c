/**
 * Decide whether a page starts with our own graph instead of the frontend's built-in one.
 *
 * The built-in default graph needs models that a new user does not have, and may need nodes that this server does not
 * have. Then the page's default graph becomes one that runs with the demo checkpoint. A workflow that the page
 * restores or opens is never touched: only the default, which is used when there is nothing to restore, is replaced.
 */

export const DEMO_CHECKPOINT = "shapes_v2.safetensors";

/**
 * List the checkpoints that a node definition offers, in both of its forms on the wire.
 *
 * @param {Record<string, any>} definitions  body of `/object_info`
 * @returns {string[]}
 */
export function checkpointsOf(definitions) {
  const [kind, options] = definitions.CheckpointLoaderSimple?.input?.required?.ckpt_name ?? [[]];
  return Array.isArray(kind) ? kind : (options?.options ?? []);
}

/**
 * Tell whether the user has no checkpoint of their own.
 *
 * @param {string[]} checkpoints
 */
export function isDemoOnly(checkpoints) {
  return checkpoints.length === 1 && checkpoints[0] === DEMO_CHECKPOINT;
}

/** Nodes that the page itself brings. */
const PAGE_NODES = new Set(["MarkdownNote", "Note", "PrimitiveNode", "Reroute"]);

/**
 * Tell whether the page's default graph is no good here: it lacks models (only the demo's are there) or nodes.
 *
 * @param {{nodes?: {type: string}[]}} defaultGraph
 * @param {Record<string, any>} definitions
 */
export function needsOurGraph(defaultGraph, definitions) {
  const checkpoints = checkpointsOf(definitions);
  if (!checkpoints.includes(DEMO_CHECKPOINT)) return false;
  if (isDemoOnly(checkpoints)) return true;
  return (defaultGraph.nodes ?? []).some(({ type }) => !(type in definitions) && !PAGE_NODES.has(type));
}

/**
 * Give the page's default graph the content of another one, in place: the page keeps a reference to the object.
 *
 * @param {Record<string, any>} target
 * @param {Record<string, any>} graph
 */
export function replaceGraph(target, graph) {
  for (const key of Object.keys(target)) delete target[key];
  Object.assign(target, structuredClone(graph));
}
