import assert from "node:assert/strict";
import { test } from "node:test";

import { createStore, initialState, reduce } from "../../web/store.js";

const worker = (slot) => ({ slot, state: "ready", running: [] });

test("workers are kept in slot order, tenth after second", () => {
  const state = reduce(initialState, { type: "workers", workers: [worker("w10"), worker("w2"), worker("w0")] });
  assert.deepEqual(state.workers.map((each) => each.slot), ["w0", "w2", "w10"]);
});

test("a failed refresh keeps the last workers and says why", () => {
  const before = reduce(initialState, { type: "workers", workers: [worker("w0")] });
  const state = reduce(before, { type: "workersFailed", problem: "gone" });
  assert.equal(state.problem, "gone");
  assert.deepEqual(state.workers, before.workers);
});

test("a good refresh clears the problem", () => {
  const failed = reduce(initialState, { type: "workersFailed", problem: "gone" });
  assert.equal(reduce(failed, { type: "workers", workers: [] }).problem, null);
});

test("the queue length follows status events", () => {
  assert.equal(reduce(initialState, { type: "queue", remaining: 3 }).remaining, 3);
});

test("an unknown event changes nothing and wakes nobody", () => {
  let calls = 0;
  const store = createStore(() => (calls += 1));
  store.dispatch({ type: "nonsense" });
  assert.equal(store.state, initialState);
  assert.equal(calls, 0);
});

test("the reducer leaves its input alone", () => {
  const workers = Object.freeze([worker("w1"), worker("w0")]);
  reduce(initialState, { type: "workers", workers });
  assert.deepEqual(workers.map((each) => each.slot), ["w1", "w0"]);
});
