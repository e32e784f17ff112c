/** Show a small box beside what the pointer or the keyboard is on. */

import { draw } from "./vdom.js";

const GAP_PX = 12;

/**
 * Make the box; it is told to screen readers when the keyboard brought it up.
 *
 * @param {HTMLElement} root  what it belongs to and takes its colours from
 */
export function createTip(root) {
  const box = document.createElement("div");
  box.className = "csl-tip";
  box.hidden = true;
  box.setAttribute("role", "status");
  root.append(box);

  /** @param {Event} event @param {import("./vdom.js").Child[]} lines */
  function show(event, lines) {
    draw(box, ...lines);
    box.hidden = lines.length === 0;
    const { x, y } = placeOf(event);
    const size = box.getBoundingClientRect();
    const left = x + GAP_PX + size.width > window.innerWidth ? x - GAP_PX - size.width : x + GAP_PX;
    const top = y + GAP_PX + size.height > window.innerHeight ? y - GAP_PX - size.height : y + GAP_PX;
    box.style.setProperty("left", `${Math.max(4, left)}px`);
    box.style.setProperty("top", `${Math.max(4, top)}px`);
  }

  return {
    show,
    hide() {
      box.hidden = true;
    },
  };
}

/** @param {Event} event */
function placeOf(event) {
  if (event instanceof MouseEvent) return { x: event.clientX, y: event.clientY };
  const target = /** @type {HTMLElement | SVGElement} */ (event.currentTarget);
  const bar = target.dataset.at && target.querySelector(`[data-bar="${CSS.escape(target.dataset.at)}"]`);
  const box = (bar || target).getBoundingClientRect();
  return { x: box.left + box.width / 2, y: box.bottom };
}
