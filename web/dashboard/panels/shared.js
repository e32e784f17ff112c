/**
 * Draw what several panels have in common.
 *
 * @typedef {import("../vdom.js").VNode} VNode
 * @typedef {import("../vdom.js").Child} Child
 * @typedef {import("../store.js").State} State
 *
 * @typedef {object} Actions  What a user can set off from a panel.
 * @property {(list: string) => void} toggle  show a list whole, or short again
 * @property {(prompt: string) => void} cancel
 * @property {(event: Event, lines: Child[]) => void} showTip
 * @property {() => void} hideTip
 */

import { h } from "../vdom.js";

export const COLORS = 10;

/**
 * Draw a panel with its heading.
 *
 * @param {string} id
 * @param {string} title
 * @param {Child} aside  stands at the end of the heading's line
 * @param {...Child} children
 */
export function panel(id, title, aside, ...children) {
  const heading = h("header", { class: "csl-panel-head" }, h("h2", { id: `csl-${id}` }, title), aside);
  return h("section", { key: id, class: `csl-panel csl-${id}`, "aria-labelledby": `csl-${id}` }, heading, children);
}

/** @param {...Child} children */
export function note(...children) {
  return h("p", { class: "csl-note" }, ...children);
}

/** @param {string} text @param {Child} [hint] */
export function emptyState(text, hint) {
  return h("div", { class: "csl-empty" }, h("p", null, text), hint && h("p", { class: "csl-note" }, hint));
}

/**
 * Return the colour of a tenant; null stands for all that are not named.
 *
 * @param {State} state
 * @param {string | null} tenant
 */
export function colorOf(state, tenant) {
  const number = tenant === null ? undefined : state.colors.get(tenant);
  return number === undefined ? "var(--csl-others)" : `var(--csl-t${number % COLORS})`;
}

const FAMILIES = ["denoise", "text", "controlnet", "vae", "image", "sample", "guided", "mask", "latent"];

/**
 * Return the family of a function, `vae` of `vae.decode`, and its colour.
 *
 * @param {string} name
 */
export function familyOf(name) {
  const family = name.split(".", 1)[0];
  const number = FAMILIES.indexOf(family);
  return { family, color: number < 0 ? "var(--csl-others)" : `var(--csl-t${number})` };
}

/** @param {State} state @param {string | null} tenant */
export function swatch(state, tenant) {
  return h("span", { class: "csl-swatch", style: { background: colorOf(state, tenant) }, "aria-hidden": "true" });
}

/** @param {State} state @param {string | null} tenant */
export function tenantName(state, tenant) {
  return h("span", { class: "csl-tenant" }, swatch(state, tenant), h("span", { class: "csl-clip" }, tenant ?? "others"));
}

/**
 * Draw a bar that is filled in parts of its whole.
 *
 * @param {string} label  what it says, for people who do not see it
 * @param {{ratio: number, kind: string, color?: string}[]} parts
 */
export function meter(label, parts) {
  let left = 1;
  const drawn = parts.map(({ ratio, kind, color }) => {
    const width = Math.max(0, Math.min(ratio, left));
    left -= width;
    const style = { width: `${(width * 100).toFixed(2)}%`, ...(color ? { background: color } : {}) };
    return h("span", { class: `csl-fill csl-fill-${kind}`, style });
  });
  return h("span", { class: "csl-meter", role: "img", "aria-label": label }, ...drawn);
}

/**
 * Keep the first entries of a long list, and draw the button that shows the others.
 *
 * @template T
 * @param {State} state
 * @param {Actions} actions
 * @param {string} list  its name
 * @param {T[]} entries
 * @param {number} few
 * @returns {{shown: T[], button: Child}}
 */
export function shorten(state, actions, list, entries, few) {
  if (entries.length <= few) return { shown: entries, button: null };
  const isOpen = state.opened.has(list);
  const attrs = { class: "csl-button csl-more", "aria-expanded": String(isOpen), onclick: () => actions.toggle(list) };
  const button = h("button", { type: "button", ...attrs }, isOpen ? "Show fewer" : `Show all ${entries.length}`);
  return { shown: isOpen ? entries : entries.slice(0, few), button };
}

/**
 * Draw a short text whose whole is told by a tooltip of the browser and to screen readers.
 *
 * @param {string} id
 */
export function shortId(id) {
  return h("code", { class: "csl-id", title: id }, id.length > 9 ? `${id.slice(0, 8)}…` : id);
}

/**
 * Tell whether anybody but the one who looks can be seen: then names of tenants matter.
 *
 * @param {State} state
 */
export function hasTenants(state) {
  const overview = state.overview;
  return overview !== null && (overview.tenants.length > 1 || overview.tenants[0]?.tenant !== overview.tenant);
}
