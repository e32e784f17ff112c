/**
 * Put badges on the graph's nodes after a run: seconds charged, how much of it was loading, or "cached".
 *
 * The page draws badges that a node lists as functions, so a badge is asked for whenever its node is drawn, and goes
 * with its node. Whatever fails here leaves nodes without a badge, and the page as it is.
 */

import { badgeOf, indexCosts, placeOf, remember } from "./costs.js";

export const SETTING = "comfyserverless.costBadges";

/** The prompt whose costs came last: nodes that the page draws as elements draw anew when a setting changes. */
const LATEST = "comfyserverless.latestCosts";
const ELEMENTS = "Comfy.VueNodes.Enabled";
const ENDS = ["execution_success", "execution_error", "execution_interrupted"];

/** @type {Record<string, {fgColor: string, bgColor: string}>} */
const LOOKS = {
  plain: { fgColor: "#ffffff", bgColor: "#39414f" },
  hot: { fgColor: "#1b1300", bgColor: "#f5a524" },
  cached: { fgColor: "#d9ffe9", bgColor: "#14532f" },
};

/**
 * Return the extension.
 *
 * @param {any} app
 * @param {any} api
 * @param {() => any} badgeClass  returns the page's class of badges
 */
export function costBadges(app, api, badgeClass = () => window.LGraphBadge) {
  /** @type {Map<string, import("./costs.js").CostIndex>} by id of the root graph */
  const runs = new Map();
  /** @type {WeakSet<object>} nodes that have our badge */
  const badged = new WeakSet();

  const rootGraph = () => app.rootGraph ?? app.graph;
  const settings = () => app.extensionManager?.setting;
  const isOn = () => settings()?.get(SETTING) !== false;

  /** @param {any} node */
  function attach(node) {
    if (badged.has(node) || !Array.isArray(node.badges) || !badgeClass()) return;
    badged.add(node);
    node.badges.push(() => draw(node));
  }

  /** @param {any} node */
  function draw(node) {
    settings()?.get(LATEST);
    const made = isOn() ? current(node) : null;
    return new (badgeClass())(made ? { text: made.text, ...LOOKS[made.kind] } : { text: "" });
  }

  /** @param {any} node */
  function current(node) {
    const run = runs.get(rootGraph()?.id ?? "");
    const cost = run?.nodes.get(placeOf(node.graph, node.id));
    return run && cost && cost.type === node.type ? badgeOf(cost, run.total_s) : null;
  }

  /** @param {any} graph @param {number} [depth] */
  function attachAll(graph, depth = 0) {
    for (const node of graph?.nodes ?? []) {
      attach(node);
      if (node.subgraph && depth < 32) attachAll(node.subgraph, depth + 1);
    }
  }

  /** @param {string} path */
  async function read(path) {
    const answer = await api.fetchApi(path);
    return answer.ok ? answer.json() : null;
  }

  /** @param {string} prompt */
  async function show(prompt) {
    const root = rootGraph();
    if (!isOn() || !root) return;
    try {
      const id = encodeURIComponent(prompt);
      const [usage, job] = await Promise.all([read(`/usage/prompts/${id}`), read(`/jobs/${id}`)]);
      const workflow = job?.workflow_id ?? root.id;
      if (!usage?.nodes || workflow !== root.id) return; // the user has another graph open now
      remember(runs, root.id ?? "", indexCosts(root, usage.nodes));
      attachAll(root);
      app.canvas?.setDirty(true, true);
      if (settings()?.get(ELEMENTS)) await settings().set(LATEST, prompt);
    } catch (error) {
      console.warn("comfyserverless: no cost badges for this run:", error);
    }
  }

  return {
    name: "comfyserverless.costBadges",
    settings: [
      {
        id: SETTING,
        name: "Show what each node cost after a run",
        category: ["comfyserverless", "Nodes", "Cost badges"],
        type: "boolean",
        defaultValue: true,
        onChange: () => app.canvas?.setDirty?.(true, true),
      },
      { id: LATEST, name: "Prompt whose costs are shown", type: "hidden", defaultValue: "" },
    ],
    /** @param {any} node */
    nodeCreated: attach,
    setup() {
      for (const end of ENDS) {
        api.addEventListener(end, (/** @type {CustomEvent} */ event) => {
          const prompt = event.detail?.prompt_id;
          if (typeof prompt === "string") show(prompt);
        });
      }
    },
  };
}
