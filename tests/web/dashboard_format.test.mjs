import assert from "node:assert/strict";
import { test } from "node:test";

import {
  formatAge,
  formatAhead,
  formatBytes,
  formatCount,
  formatDuration,
  formatRatio,
  formatService,
} from "../../web/dashboard/format.js";
import { applyTheme, nextTheme, storedTheme } from "../../web/dashboard/theme.js";

test("sizes are written in the largest fitting unit", () => {
  assert.deepEqual([0, 1023, 1536, 3 * 1024 ** 3].map(formatBytes), ["0 B", "1023 B", "1.5 KiB", "3 GiB"]);
});

test("durations have about three digits, up to hours", () => {
  assert.deepEqual(
    [0, 0.0004, 0.012, 0.9996, 1.239, 12.34, 59.96, 185, 7440, -3, NaN].map(formatDuration),
    ["0 s", "< 1 ms", "12 ms", "1.00 s", "1.24 s", "12.3 s", "1 min 0 s", "3 min 5 s", "2 h 4 min", "−3.00 s", "–"],
  );
});

test("ages are whole seconds and never negative", () => {
  assert.deepEqual([-1, 0.9, 59.9, 61].map(formatAge), ["0 s", "0 s", "59 s", "1 min 1 s"]);
});

test("leads have a sign, service has groups, parts are per cent", () => {
  assert.deepEqual([0.04, -0.04, 1.25, -2].map(formatAhead), ["0.0 s", "0.0 s", "+1.3 s", "−2.0 s"]);
  assert.equal(formatService(1234.56), "1,234.6 s");
  assert.deepEqual([0, 0.004, 0.426, 1].map(formatRatio), ["0 %", "< 1 %", "43 %", "100 %"]);
  assert.deepEqual([formatCount(1, "block"), formatCount(1200, "block")], ["1 block", "1,200 blocks"]);
});

test("the theme is the system's until the user chooses, and what is stored may be nonsense", () => {
  const kept = new Map([["comfyserverless.theme", "pink"]]);
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  assert.equal(storedTheme(storage), "system");
  assert.deepEqual([nextTheme(storage), nextTheme(storage), nextTheme(storage)], ["light", "dark", "system"]);
  const element = { dataset: {} };
  applyTheme(element, "dark");
  assert.equal(element.dataset.theme, "dark");
  applyTheme(element, "system");
  assert.deepEqual(element.dataset, {});
});
