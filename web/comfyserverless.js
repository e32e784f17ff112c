/** Join the page: our first graph for new users, and the Workers tab. Runs in the unchanged ComfyUI frontend. */

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";
import { needsOurGraph, replaceGraph } from "./first_graph.js";
import { createStore } from "./store.js";
import { renderWorkers } from "./workers_panel.js";

const REFRESH_MS = 2000;

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

app.registerExtension({
  name: "comfyserverless.workers",

  setup() {
    /** @type {HTMLElement | null} */
    let root = null;
    /** @type {number | undefined} */
    let timer;
    const store = createStore((state) => root && renderWorkers(root, state));

    api.addEventListener("status", (/** @type {CustomEvent} */ event) => {
      const remaining = event.detail?.exec_info?.queue_remaining;
      if (typeof remaining === "number") store.dispatch({ type: "queue", remaining });
    });

    async function refresh() {
      try {
        const answer = await api.fetchApi("/comfyserverless/workers");
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        store.dispatch({ type: "workers", workers: (await answer.json()).workers });
      } catch (error) {
        store.dispatch({ type: "workersFailed", problem: `The workers cannot be read: ${error.message}` });
      }
    }

    app.extensionManager.registerSidebarTab({
      id: "comfyserverless.workers",
      icon: "pi pi-server",
      title: "Workers",
      tooltip: "Workers",
      type: "custom",
      render(/** @type {HTMLElement} */ element) {
        window.clearInterval(timer);
        root = document.createElement("div");
        root.style.cssText = "padding: 0.75rem; overflow: auto; height: 100%; font-size: 0.85rem";
        element.replaceChildren(root);
        renderWorkers(root, store.state);
        refresh();
        timer = window.setInterval(refresh, REFRESH_MS);
      },
      destroy() {
        window.clearInterval(timer);
        root = null;
      },
    });
  },
});
