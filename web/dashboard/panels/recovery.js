/** Draw what losses of workers have cost since the server started. */

import { formatBytes, formatCount } from "../format.js";
import { h } from "../vdom.js";
import { panel } from "./shared.js";

/** @param {import("../store.js").State} state */
export function recoveryPanel(state) {
  const recovery = state.overview?.recovery;
  if (!recovery) return null;
  const kept = `${formatCount(recovery.checkpoints, "checkpoint")}, ${formatBytes(recovery.checkpoint_bytes)}`;
  const every = recovery.checkpoint_steps > 0 ? `at most ${formatCount(recovery.checkpoint_steps, "step")} apart` : "";
  const told =
    recovery.workers_lost === 0
      ? "No worker was lost since the server started."
      : `${formatCount(recovery.workers_lost, "worker was", "workers were")} lost since the server started.`;
  return panel(
    "recovery",
    "Recovery",
    null,
    h("p", null, told),
    h(
      "dl",
      { class: "csl-facts" },
      fact("Workers lost", recovery.workers_lost.toLocaleString("en")),
      fact("Steps taken again", recovery.steps_rerun.toLocaleString("en")),
      fact("Walks resumed", recovery.restored.toLocaleString("en")),
      fact("Kept for a loss", every ? `${kept}, ${every}` : kept),
    ),
  );
}

/** @param {string} label @param {string} text */
function fact(label, text) {
  return h("div", null, h("dt", null, label), h("dd", null, text));
}
