/** Join the page: our first graph for new users, the dashboard, cost badges. Runs in the unchanged ComfyUI frontend. */

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";
import { costBadges } from "./badges/extension.js";
import { dashboardTab } from "./dashboard/sidebar.js";
import { needsOurGraph, replaceGraph } from "./first_graph.js";

/** @type {Record<string, any>} */
let nodeDefinitions = {};

app.registerExtension({
  name: "comfyserverless.firstGraph",

  /** @param {Record<string, any>} definitions */
  addCustomNodeDefs(definitions) {
    nodeDefinitions = definitions;
  },

  /** Runs after the node definitions are known and before the page loads its first graph. */
  async setup() {
    const target = window.comfyAPI?.defaultGraph?.defaultGraph;
    if (!target || !needsOurGraph(target, nodeDefinitions)) return;
    const answer = await fetch(new URL("./default_graph.json", import.meta.url));
    if (!answer.ok) return;
    replaceGraph(target, await answer.json());
    // A page that has seen the tutorial opens its default graph; a new one opens a list of templates to download.
    await app.extensionManager.setting.set("Comfy.TutorialCompleted", true);
  },
});

app.registerExtension(dashboardTab(app, api));
app.registerExtension(costBadges(app, api));
