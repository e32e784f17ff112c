/** Run the dashboard's own page. Other pages may import this module; there it does nothing. */

import { applyTheme, nextTheme, storedTheme } from "./theme.js";
import { mountDashboard } from "./view.js";

const root = document.getElementById("csl-dashboard");
if (root) {
  mountDashboard(root, { ask: (path, init) => fetch(`/api${path}`, init) });
  const button = /** @type {HTMLButtonElement} */ (document.getElementById("csl-theme"));
  const show = (/** @type {string} */ theme) => {
    applyTheme(document.documentElement, theme);
    button.textContent = `Theme: ${theme}`;
  };
  show(storedTheme(localStorage));
  button.addEventListener("click", () => show(nextTheme(localStorage)));
}
