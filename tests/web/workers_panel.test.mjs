import assert from "node:assert/strict";
import { test } from "node:test";

import { formatBytes, workerRows } from "../../web/workers_panel.js";

const worker = {
  slot: "w0",
  state: "busy",
  pid: 7,
  restarts: 0,
  device_name: "cpu",
  device_kind: "cpu",
  device_total_bytes: 4 * 1024 ** 3,
  device_free_bytes: 1024 ** 3,
  resident_bytes: 1024 ** 2,
  arena_used_bytes: 512,
  arena_bytes: 2048,
  weights_bytes: 0,
  running: ["denoise.step"],
};

test("sizes are written in the largest fitting unit", () => {
  assert.deepEqual([0, 1023, 1536, 3 * 1024 ** 3].map(formatBytes), ["0 B", "1023 B", "1.5 KiB", "3 GiB"]);
});

test("a busy worker shows its function, used device memory and arena", () => {
  const rows = Object.fromEntries(workerRows(worker));
  assert.equal(rows.Runs, "denoise.step");
  assert.equal(rows["Device memory"], "3 GiB of 4 GiB");
  assert.equal(rows.Arena, "512 B of 2 KiB");
});

test("a worker that never restarted shows no restarts", () => {
  assert.ok(!("Restarts" in Object.fromEntries(workerRows(worker))));
  assert.equal(Object.fromEntries(workerRows({ ...worker, restarts: 2 })).Restarts, "2");
});
