/** Show the dashboard in a tab of the editor's sidebar, in the editor's theme. */

import { h } from "./vdom.js";
import { mountDashboard } from "./view.js";

/**
 * Return the extension.
 *
 * @param {any} app
 * @param {any} api
 */
export function dashboardTab(app, api) {
  /** @type {() => void} */
  let close = () => {};
  return {
    name: "comfyserverless.dashboard",
    setup() {
      addStyles();
      app.extensionManager.registerSidebarTab({
        id: "comfyserverless.dashboard",
        icon: "pi pi-chart-bar",
        title: "Overview",
        tooltip: "Overview: tenants, queue, workers",
        type: "custom",
        render(/** @type {HTMLElement} */ element) {
          close();
          close = open(element, api);
        },
        destroy() {
          close();
          close = () => {};
        },
      });
    },
  };
}

function addStyles() {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL("./dashboard.css", import.meta.url).href;
  document.head.append(link);
}

/** Return the editor's theme: it tells its colour scheme; earlier ones had a class instead. */
function editorTheme() {
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  if (scheme === "dark" || scheme === "light") return scheme;
  return document.body.classList.contains("dark-theme") ? "dark" : "light";
}

/** @param {HTMLElement} element @param {any} api */
function open(element, api) {
  const root = document.createElement("div");
  root.className = "csl-sidebar";
  element.replaceChildren(root);
  const follow = () => {
    root.dataset.theme = editorTheme();
  };
  follow();
  const watcher = new MutationObserver(follow);
  for (const each of [document.documentElement, document.body]) {
    watcher.observe(each, { attributes: true, attributeFilter: ["class", "style"] });
  }
  const link = h("a", { class: "csl-button", href: "/dashboard", target: "_blank", rel: "noopener" }, "Whole page");
  const end = mountDashboard(root, { ask: (path, init) => api.fetchApi(path, init), extra: link });
  return () => {
    watcher.disconnect();
    end();
  };
}
