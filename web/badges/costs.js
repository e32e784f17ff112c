/**
 * Find out which node of a graph cost what in a run. Pure.
 *
 * A run knows nodes by execution ids: `5`, and `7:2` for node 2 inside of the subgraph node 7. One subgraph may stand
 * in several places; then a node of its definition shows what all its places cost.
 *
 * @typedef {object} NodeCost  As `GET /usage/prompts/{prompt_id}` tells it; seconds.
 * @property {number} charged_s
 * @property {number} load_s
 * @property {boolean} cached
 * @property {number} [queued_s]
 * @property {number} [calls]
 *
 * @typedef {object} Graph  What we need of the page's graphs.
 * @property {string} [id]
 * @property {GraphNode[]} [nodes]
 *
 * @typedef {object} GraphNode
 * @property {number | string} id
 * @property {string} [type]
 * @property {Graph} [graph]
 * @property {Graph} [subgraph]
 *
 * @typedef {{type: string | undefined, charged_s: number, load_s: number, isCached: boolean}} ShownCost
 * @typedef {{total_s: number, nodes: Map<string, ShownCost>}} CostIndex
 */

const DEEPEST = 32;

/** A node is hot if it took so much of its run, and is worth a look at all. */
const HOT_RATIO = 0.3;
const HOT_S = 0.1;

/**
 * Name a node by the graph it is in.
 *
 * @param {Graph | undefined} graph
 * @param {number | string} id
 */
export function placeOf(graph, id) {
  return `${graph?.id ?? ""}/${id}`;
}

/**
 * Return what each node of a graph, and of the subgraphs in it, cost in a run.
 *
 * @param {Graph} root
 * @param {Record<string, NodeCost>} costs  by execution id
 * @returns {CostIndex}
 */
export function indexCosts(root, costs) {
  /** @type {Map<string, NodeCost>} */
  const byId = new Map(Object.entries(costs));
  /** @type {Map<string, ShownCost>} */
  const nodes = new Map();
  collect(root, "", byId, nodes, 0);
  let total_s = 0;
  for (const cost of byId.values()) total_s += finite(cost.charged_s);
  return { total_s, nodes };
}

/**
 * @param {Graph} graph
 * @param {string} prefix
 * @param {Map<string, NodeCost>} costs
 * @param {Map<string, ShownCost>} nodes
 * @param {number} depth
 * @returns {ShownCost[]}  of the graph's nodes that took part in the run
 */
function collect(graph, prefix, costs, nodes, depth) {
  /** @type {ShownCost[]} */
  const told = [];
  for (const node of depth < DEEPEST ? (graph.nodes ?? []) : []) {
    const id = `${prefix}${node.id}`;
    const parts = node.subgraph ? collect(node.subgraph, `${id}:`, costs, nodes, depth + 1) : [];
    const own = costs.get(id);
    if (own) parts.push(shown(node, own));
    if (parts.length === 0) continue;
    const cost = { ...added(parts), type: node.type };
    told.push(cost);
    const place = placeOf(graph, node.id);
    const before = nodes.get(place);
    nodes.set(place, before ? { ...added([before, cost]), type: node.type } : cost);
  }
  return told;
}

/** @param {GraphNode} node @param {NodeCost} cost @returns {ShownCost} */
function shown(node, cost) {
  return {
    type: node.type,
    charged_s: finite(cost.charged_s),
    load_s: finite(cost.load_s),
    isCached: cost.cached === true,
  };
}

/** @param {ShownCost[]} parts */
function added(parts) {
  return {
    charged_s: parts.reduce((sum, each) => sum + each.charged_s, 0),
    load_s: parts.reduce((sum, each) => sum + each.load_s, 0),
    isCached: parts.every((each) => each.isCached),
  };
}

/** @param {unknown} number */
function finite(number) {
  return typeof number === "number" && Number.isFinite(number) && number > 0 ? number : 0;
}

/**
 * Return what a node's badge says, null for none: nodes that run in the control process cost nothing.
 *
 * @param {ShownCost | undefined} cost
 * @param {number} total_s  charged for the whole run
 * @returns {{text: string, kind: "cached" | "hot" | "plain"} | null}
 */
export function badgeOf(cost, total_s) {
  if (!cost) return null;
  if (cost.isCached) return { text: "cached", kind: "cached" };
  if (cost.charged_s < 0.0005) return null;
  const load = cost.load_s >= 0.05 ? ` (load ${seconds(cost.load_s)})` : "";
  const isHot = cost.charged_s >= HOT_S && cost.charged_s >= total_s * HOT_RATIO;
  return { text: `${seconds(cost.charged_s)}${load}`, kind: isHot ? "hot" : "plain" };
}

/** @param {number} number */
function seconds(number) {
  if (number < 0.0995) return `${Math.max(1, Math.round(number * 1000))} ms`;
  return `${number.toFixed(number < 9.995 ? 2 : 1)} s`;
}

/**
 * Keep what belongs to the last few graphs.
 *
 * @template T
 * @param {Map<string, T>} map @param {string} key @param {T} entry @param {number} [most]
 */
export function remember(map, key, entry, most = 16) {
  map.delete(key);
  map.set(key, entry);
  for (const oldest of [...map.keys()].slice(0, Math.max(0, map.size - most))) map.delete(oldest);
}
