import assert from "node:assert/strict";
import { test } from "node:test";

import { createStore, freeRow, initialState, LANE_ROWS, reduce } from "../../web/dashboard/store.js";
import { NOW, overview, prompt, sample, stretch, tenant, worker } from "./overviews.mjs";

const after = (...overviews) =>
  overviews.reduce((state, each) => reduce(state, { type: "overview", overview: each }), initialState);

test("workers are kept in slot order, tenth after second", () => {
  const state = after(overview({ workers: [worker("w10"), worker("w2"), worker("w0")] }));
  assert.deepEqual(
    state.overview.workers.map((each) => each.slot),
    ["w0", "w2", "w10"],
  );
});

test("what is new is added to what was told before", () => {
  const state = after(
    overview({ samples: [sample(4, [])], stretches: [stretch(1, -20, -10)] }),
    overview({ is_full: false, samples: [sample(2, [])], stretches: [stretch(2, -5, -4)] }),
  );
  assert.deepEqual(state.samples.map((each) => each.at_s), [NOW - 4, NOW - 2]);
  assert.deepEqual(state.stretches.map((each) => each.id), [1, 2]);
});

test("a stretch that went on replaces what was told of it and keeps its row", () => {
  const state = after(
    overview({ stretches: [stretch(1, -20, -10), stretch(2, -15, -12, { tenant: "bob" })] }),
    overview({ is_full: false, stretches: [stretch(2, -15, -1, { tenant: "bob", calls: 9 })] }),
  );
  assert.deepEqual(state.stretches.map((each) => [each.id, each.row, each.calls]), [[1, 0, 1], [2, 1, 9]]);
});

test("a server that has started anew voids what was told before", () => {
  const state = after(
    overview({ samples: [sample(4, [])], stretches: [stretch(1, -20, -10)] }),
    overview({ is_full: true, samples: [], stretches: [] }),
  );
  assert.deepEqual([state.samples, state.stretches], [[], []]);
});

test("what is older than the picture is forgotten", () => {
  const state = after(
    overview({ samples: [sample(601, []), sample(599, [])], stretches: [stretch(1, -90, -61), stretch(2, -90, -59)] }),
  );
  assert.deepEqual(state.samples.map((each) => each.at_s), [NOW - 599]);
  assert.deepEqual(state.stretches.map((each) => each.id), [2]);
});

test("calls that overlap get rows of their own, those in other lanes do not matter", () => {
  const others = [
    { ...stretch(1, -20, -10), row: 0 },
    { ...stretch(2, -20, -10, { lane: "cpu" }), row: 1 },
  ];
  assert.equal(freeRow(others, stretch(3, -15, -12)), 1);
  assert.equal(freeRow(others, stretch(3, -10, -9)), 0);
  const crowd = Array.from({ length: 9 }, (_, row) => ({ ...stretch(row, -20, -10), row }));
  assert.equal(freeRow(crowd, stretch(99, -15, -12)), LANE_ROWS - 1);
});

test("tenants keep their colour when others come", () => {
  const first = after(overview({ tenants: [tenant("bob")] }));
  const then = reduce(first, { type: "overview", overview: overview({ tenants: [tenant("alice"), tenant("bob")] }) });
  assert.equal(then.colors.get("bob"), first.colors.get("bob"));
  assert.notEqual(then.colors.get("alice"), then.colors.get("bob"));
});

test("a failure keeps what was shown and says why, the next answer clears it", () => {
  const failed = reduce(after(overview()), { type: "failed", problem: "gone" });
  assert.deepEqual([failed.status, failed.problem], ["stale", "gone"]);
  assert.ok(failed.overview);
  const back = reduce(failed, { type: "overview", overview: overview() });
  assert.deepEqual([back.status, back.problem], ["live", null]);
});

test("who is not logged in any more sees nothing of before", () => {
  const state = reduce(after(overview({ samples: [sample(4, [])] })), { type: "denied" });
  assert.deepEqual([state.status, state.overview, state.samples.length], ["denied", null, 0]);
});

test("a prompt is being cancelled until it is gone or cannot be cancelled", () => {
  const shown = after(overview({ queue: [prompt("p1"), prompt("p2")] }));
  let state = reduce(shown, { type: "cancel", prompt: "p1" });
  state = reduce(state, { type: "cancel", prompt: "p2" });
  state = reduce(state, { type: "cancelFailed", prompt: "p2", problem: "no" });
  assert.deepEqual([[...state.cancelling], state.problem], [["p1"], "no"]);
  state = reduce(state, { type: "overview", overview: overview({ queue: [prompt("p2")] }) });
  assert.equal(state.cancelling.size, 0);
});

test("an unknown event changes nothing and wakes nobody", () => {
  let calls = 0;
  const store = createStore(() => (calls += 1));
  store.dispatch({ type: "nonsense" });
  assert.equal(store.state, initialState);
  assert.equal(calls, 0);
});

test("the reducer leaves its input alone", () => {
  const told = overview({ workers: Object.freeze([worker("w1"), worker("w0")]), samples: Object.freeze([sample(1, [])]) });
  after(Object.freeze(told), Object.freeze({ ...told, is_full: false }));
  assert.deepEqual(told.workers.map((each) => each.slot), ["w1", "w0"]);
});
