/**
 * Draw the Workers tab: what each worker does and how full it is. The drawing depends on the state only.
 *
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Worker} Worker
 */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/**
 * Write a size for people, for example 1536 as "1.5 KiB".
 *
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  let unit = 0;
  let amount = bytes;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(amount) ? amount : amount.toFixed(1)} ${UNITS[unit]}`;
}

/**
 * List what the panel shows of a worker as [label, text] rows.
 *
 * @param {Worker} worker
 * @returns {[string, string][]}
 */
export function workerRows(worker) {
  /** @type {[string, string][]} */
  const rows = [["State", worker.state]];
  if (worker.running.length > 0) rows.push(["Runs", worker.running.join(", ")]);
  if (worker.device_name) rows.push(["Device", worker.device_name]);
  if (worker.device_total_bytes > 0) {
    const used = worker.device_total_bytes - worker.device_free_bytes;
    rows.push(["Device memory", `${formatBytes(used)} of ${formatBytes(worker.device_total_bytes)}`]);
  }
  if (worker.arena_bytes > 0) {
    rows.push(["Arena", `${formatBytes(worker.arena_used_bytes)} of ${formatBytes(worker.arena_bytes)}`]);
  }
  rows.push(["Weights", formatBytes(worker.weights_bytes)]);
  rows.push(["Process memory", formatBytes(worker.resident_bytes)]);
  if (worker.restarts > 0) rows.push(["Restarts", String(worker.restarts)]);
  return rows;
}

/**
 * Fill the tab's element with the state.
 *
 * @param {HTMLElement} root
 * @param {State} state
 */
export function renderWorkers(root, state) {
  const parts = [element("p", {}, `Prompts waiting or running: ${state.remaining}`)];
  if (state.problem) parts.push(element("p", { role: "alert", "data-problem": "" }, state.problem));
  if (state.workers.length === 0 && !state.problem) parts.push(element("p", {}, "No worker yet."));
  parts.push(...state.workers.map(renderWorker));
  root.replaceChildren(...parts);
}

/** @param {Worker} worker */
function renderWorker(worker) {
  const list = element("dl", { style: "display: grid; grid-template-columns: auto 1fr; gap: 0.15rem 0.75rem" });
  for (const [label, text] of workerRows(worker)) {
    list.append(element("dt", { style: "opacity: 0.7" }, label), element("dd", { style: "margin: 0" }, text));
  }
  const card = element("section", { "data-worker": worker.slot, style: "margin: 0.75rem 0" });
  card.append(element("h3", { style: "margin: 0 0 0.25rem" }, `Worker ${worker.slot}`), list);
  return card;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {string} [text]
 */
function element(tag, attributes, text = "") {
  const made = document.createElement(tag);
  for (const [name, attribute] of Object.entries(attributes)) made.setAttribute(name, attribute);
  made.textContent = text;
  return made;
}
