import assert from "node:assert/strict";
import { test } from "node:test";

import {
  aheadSeries,
  HEIGHT,
  linePaths,
  nearest,
  positions,
  rangeOf,
  shareSeries,
  stackedPaths,
  WIDTH,
} from "../../web/dashboard/panels/charts.js";
import { NOW, sample } from "./overviews.mjs";

test("who held most is at the bottom, the many others are one series on top", () => {
  const samples = [sample(2, [["a", 0.1, 0], ["b", 0.4, 0], ["c", 0.2, 0]], { others: 0.05 })];
  const series = shareSeries(samples, 2);
  assert.deepEqual(series.map(({ tenant }) => tenant), ["b", "c", null]);
  assert.deepEqual(series.map(({ points }) => Math.round(points[0] * 100)), [40, 20, 15]);
});

test("without others there is no series of them", () => {
  assert.deepEqual(shareSeries([sample(2, [["a", 0.1, 0]])]).map(({ tenant }) => tenant), ["a"]);
});

test("a name like a property of objects is a name", () => {
  const samples = [sample(2, [["__proto__", 0.5, 1], ["constructor", 0.25, 2]])];
  assert.deepEqual(shareSeries(samples).map(({ points }) => points[0]), [0.5, 0.25]);
  assert.deepEqual(aheadSeries(samples).map(({ points }) => points[0]), [1, 2]);
});

test("now is at the right edge, ten minutes ago at the left", () => {
  assert.deepEqual(positions([sample(600, []), sample(300, []), sample(0, [])], NOW), [0, WIDTH / 2, WIDTH]);
});

test("stacked shares of a full lane reach the top and never leave the picture", () => {
  const samples = [sample(2, [["a", 0.75, 0], ["b", 0.5, 0]])];
  const [lower, upper] = stackedPaths(shareSeries(samples), [WIDTH], 5);
  assert.equal(lower, `M${WIDTH - 5},25L${WIDTH},25L${WIDTH},100L${WIDTH - 5},100Z`);
  assert.match(upper, /^M995,0L1000,0L1000,25/);
});

test("a pause of the server is a gap, not a slope", () => {
  const [path] = stackedPaths([{ tenant: "a", points: [1, 1], isThere: [true, true] }], [100, 900], 5);
  assert.match(path, /^M95,0L100,0L895,0L900,0/);
});

test("a line has gaps where its tenant had nothing to do", () => {
  const series = [{ tenant: "a", points: [0, 1, 0, 2], isThere: [true, true, false, true] }];
  assert.deepEqual(linePaths(series, [0, 10, 20, 30], { least: 0, most: 2 }), [`M0,${HEIGHT}L10,50M30,0`]);
});

test("limits of the lead are round and hold zero", () => {
  const of = (...points) => rangeOf([{ tenant: "a", points, isThere: points.map(() => true) }]);
  assert.deepEqual(of(0.2), { least: 0, most: 1 });
  assert.deepEqual(of(3.2, 1), { least: 0, most: 5 });
  assert.deepEqual(of(40, -3), { least: -12.5, most: 50 });
  assert.deepEqual(rangeOf([]), { least: 0, most: 1 });
});

test("the sample under the pointer is the nearest one", () => {
  assert.deepEqual([nearest([], 5), nearest([0, 10], 4), nearest([0, 10], 6)], [-1, 0, 1]);
});
