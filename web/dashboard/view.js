/** Put the dashboard into an element: panels, feed, tooltip, and what a user can set off. */

import { startFeed } from "./feed.js";
import { queuePanel } from "./panels/queue.js";
import { recoveryPanel } from "./panels/recovery.js";
import { sharesPanel } from "./panels/shares.js";
import { summaryPanel } from "./panels/summary.js";
import { tenantsPanel } from "./panels/tenants.js";
import { timelinePanel } from "./panels/timeline.js";
import { workersPanel } from "./panels/workers.js";
import { createStore } from "./store.js";
import { createTip } from "./tip.js";
import { draw, h } from "./vdom.js";

/**
 * @typedef {import("./store.js").State} State
 * @typedef {(path: string, init?: RequestInit) => Promise<Response>} Ask
 */

/**
 * Draw everything below the page's own heading.
 *
 * @param {State} state
 * @param {import("./panels/shared.js").Actions & {pause: (shallPause: boolean) => void}} actions
 * @param {import("./vdom.js").Child} extra  stands in the line of the connection's state
 */
export function dashboard(state, actions, extra) {
  if (state.status === "denied") return [denied()];
  return [
    statusLine(state, actions, extra),
    state.problem && h("p", { key: "problem", class: "csl-problem", role: "alert" }, state.problem),
    state.overview ? panels(state, actions) : h("p", { key: "first", class: "csl-note" }, "Asking the server …"),
  ];
}

/** @param {State} state @param {import("./panels/shared.js").Actions} actions */
function panels(state, actions) {
  return [
    summaryPanel(state),
    timelinePanel(state, actions),
    h(
      "div",
      { key: "columns", class: "csl-columns" },
      sharesPanel(state, actions),
      h("div", { key: "column", class: "csl-column" }, tenantsPanel(state, actions), queuePanel(state, actions)),
    ),
    workersPanel(state, actions),
    recoveryPanel(state),
  ];
}

function denied() {
  return h(
    "div",
    { key: "denied", class: "csl-empty", role: "alert" },
    h("p", null, "You are not logged in any more."),
    h("p", null, h("a", { class: "csl-button", href: "/login" }, "Log in")),
  );
}

/** @param {State} state @param {{pause: (shallPause: boolean) => void}} actions @param {import("./vdom.js").Child} extra */
function statusLine(state, actions, extra) {
  const kind = state.isPaused ? "paused" : state.status;
  const texts = { connecting: "Connecting", live: "Live", stale: "Not up to date", paused: "Paused", denied: "" };
  const pause = h(
    "button",
    { type: "button", class: "csl-button", "aria-pressed": String(state.isPaused), onclick: () => actions.pause(!state.isPaused) },
    state.isPaused ? "Go on" : "Pause",
  );
  const live = h("span", { class: `csl-live csl-live-${kind}`, role: "status" }, texts[kind]);
  return h("div", { key: "status", class: "csl-status" }, live, pause, extra);
}

/**
 * Begin to show the dashboard in an element.
 *
 * @param {HTMLElement} root
 * @param {{ask: Ask, extra?: import("./vdom.js").Child}} options  ask: fetch of the server's API paths
 * @returns {() => void} ends it
 */
export function mountDashboard(root, { ask, extra = null }) {
  root.classList.add("csl");
  const body = document.createElement("div");
  body.className = "csl-body";
  root.replaceChildren(body);
  const tip = createTip(root);

  let isDrawn = false;
  const store = createStore((state) => {
    if (isDrawn) return;
    isDrawn = true;
    requestAnimationFrame(() => {
      isDrawn = false;
      draw(body, dashboard(store.state, actions, extra));
    });
    if (state.status === "denied") tip.hide();
  });

  const actions = {
    toggle: (/** @type {string} */ list) => store.dispatch({ type: "toggle", list }),
    showTip: tip.show,
    hideTip: tip.hide,
    pause(/** @type {boolean} */ isPaused) {
      store.dispatch({ type: "pause", isPaused });
      feed.pause(isPaused);
    },
    async cancel(/** @type {string} */ prompt) {
      store.dispatch({ type: "cancel", prompt });
      try {
        const answer = await ask(`/jobs/${encodeURIComponent(prompt)}/cancel`, { method: "POST" });
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        feed.hurry();
      } catch (error) {
        const problem = `The prompt was not cancelled: ${error.message}`;
        store.dispatch({ type: "cancelFailed", prompt, problem });
      }
    },
  };

  draw(body, dashboard(store.state, actions, extra));
  const feed = startFeed(ask, store.dispatch);
  return () => {
    feed.stop();
    root.replaceChildren();
  };
}
