/** Choose between light and dark: as the system has it, unless the user says otherwise. */

export const THEMES = ["system", "light", "dark"];
const KEY = "comfyserverless.theme";

/**
 * Return what the user chose.
 *
 * @param {Pick<Storage, "getItem">} storage
 */
export function storedTheme(storage) {
  const theme = storage.getItem(KEY);
  return theme !== null && THEMES.includes(theme) ? theme : THEMES[0];
}

/**
 * Choose the next theme, and keep it.
 *
 * @param {Storage} storage
 */
export function nextTheme(storage) {
  const theme = THEMES[(THEMES.indexOf(storedTheme(storage)) + 1) % THEMES.length];
  storage.setItem(KEY, theme);
  return theme;
}

/**
 * Make an element and what is in it follow a theme.
 *
 * @param {HTMLElement} element
 * @param {string} theme
 */
export function applyTheme(element, theme) {
  if (theme === "system") delete element.dataset.theme;
  else element.dataset.theme = theme;
}
