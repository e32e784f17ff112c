import assert from "node:assert/strict";
import { test } from "node:test";

import { BARS, slotOf, strips } from "../../web/dashboard/panels/bars.js";
import { initialState, reduce } from "../../web/dashboard/store.js";
import { NOW, overview, stretch, worker } from "./overviews.mjs";

const state = (more) => reduce(initialState, { type: "overview", overview: overview(more) });
const staying = (began, more = {}) => {
  const { id, outcome, ended_s, calls, held_s, load_s, charged_s, ...rest } = stretch(0, began, 0, more);
  return rest;
};

test("every worker has a strip, GPU lanes come before CPU lanes, w10 after w9", () => {
  const all = strips(
    state({ workers: [worker("w10"), worker("w9")], stretches: [stretch(1, -3, -2, { worker: "w9.4", lane: "cpu" })] }),
    NOW,
  );
  assert.deepEqual(all.map((each) => `${each.slot} ${each.lane}`), ["w9 gpu", "w9 cpu", "w10 gpu"]);
});

test("incarnations of a worker share the strip of its slot", () => {
  assert.deepEqual([slotOf("w0.3"), slotOf("w12.0"), slotOf("odd")], ["w0", "w12", "odd"]);
  const all = strips(state({ stretches: [stretch(1, -9, -8, { worker: "w0.0" }), stretch(2, -3, -2, { worker: "w0.1" })] }), NOW);
  assert.deepEqual(all.map((each) => each.bars.length), [2]);
});

test("a call that runs reaches until now, in the row of the calls before it", () => {
  const [strip] = strips(state({ stretches: [stretch(1, -9, -4)], running: [staying(-3.95)] }), NOW);
  assert.deepEqual(
    strip.bars.map((each) => [each.row, each.isRunning, Math.round(each.to)]),
    [[0, false, -4], [0, true, 0]],
  );
});

test("two calls that run in one lane are in two rows", () => {
  const [strip] = strips(state({ running: [staying(-5), staying(-4, { node: "8" })] }), NOW);
  assert.deepEqual(strip.bars.map((each) => each.row), [0, 1]);
  assert.equal(strip.rows, 2);
});

test("a call too short to be seen is drawn so long that it is", () => {
  const [strip] = strips(state({ stretches: [stretch(1, -9, -8.999)] }), NOW);
  assert.ok(strip.bars[0].to - strip.bars[0].from >= 0.1);
});

test("a dense lane draws its newest bars only", () => {
  const many = Array.from({ length: BARS + 50 }, (_, at) => stretch(at, -50 + at / 10, -50 + at / 10 + 0.05));
  const [strip] = strips(state({ stretches: many }), NOW);
  assert.equal(strip.bars.length, BARS);
  assert.equal(strip.bars.at(-1).key, String(BARS + 49));
});
