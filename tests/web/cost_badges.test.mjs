import assert from "node:assert/strict";
import { test } from "node:test";

import { badgeOf, indexCosts, placeOf, remember } from "../../web/badges/costs.js";
import { costBadges, SETTING } from "../../web/badges/extension.js";

const cost = (charged_s, more = {}) => ({ charged_s, load_s: 0, cached: false, ...more });

test("a node of the graph shows its cost, hot if it took a large part of the run", () => {
  const root = { id: "g", nodes: [{ id: 3, type: "KSampler" }, { id: 8, type: "VAEDecode" }] };
  const { total_s, nodes } = indexCosts(root, { 3: cost(2.5, { load_s: 0.5 }), 8: cost(0.04) });
  assert.deepEqual(badgeOf(nodes.get(placeOf(root, 3)), total_s), { text: "2.50 s (load 0.50 s)", kind: "hot" });
  assert.deepEqual(badgeOf(nodes.get(placeOf(root, 8)), total_s), { text: "40 ms", kind: "plain" });
});

test("a cached node says so, and one that costs nothing says nothing", () => {
  const shown = (one) => badgeOf({ type: "A", charged_s: 0, load_s: 0, isCached: false, ...one }, 1);
  assert.deepEqual(shown({ isCached: true }), { text: "cached", kind: "cached" });
  assert.equal(shown({}), null);
  assert.equal(badgeOf(undefined, 1), null);
});

test("a fast run has no hot nodes", () => {
  assert.equal(badgeOf({ type: "A", charged_s: 0.05, load_s: 0, isCached: false }, 0.05).kind, "plain");
});

test("a subgraph node shows what its inside costs, in all places where it stands", () => {
  const inside = { id: "s", nodes: [{ id: 1, type: "KSampler" }, { id: 2, type: "VAEDecode" }] };
  const root = { id: "g", nodes: [{ id: 7, type: "s", subgraph: inside }, { id: 9, type: "s", subgraph: inside }] };
  const { nodes, total_s } = indexCosts(root, {
    "7:1": cost(1),
    "7:2": cost(0, { cached: true }),
    "9:1": cost(0, { cached: true }),
    "9:2": cost(0, { cached: true }),
  });
  assert.equal(total_s, 1);
  assert.deepEqual([nodes.get("g/7").charged_s, nodes.get("g/7").isCached], [1, false]);
  assert.equal(nodes.get("g/9").isCached, true);
  assert.deepEqual([nodes.get("s/1").charged_s, nodes.get("s/1").isCached], [1, false]);
});

test("a subgraph that holds itself does not hang", () => {
  const loop = { id: "s", nodes: [] };
  loop.nodes.push({ id: 1, type: "s", subgraph: loop });
  assert.ok(indexCosts(loop, { 1: cost(1) }).nodes.size >= 1);
});

test("numbers that make no sense cost nothing", () => {
  const root = { id: "g", nodes: [{ id: 1, type: "A" }] };
  for (const bad of [NaN, -1, "2", null, undefined, Infinity]) {
    assert.equal(indexCosts(root, { 1: cost(bad, { load_s: bad }) }).total_s, 0);
  }
});

test("costs of the last few graphs are kept", () => {
  const map = new Map();
  for (const key of ["a", "b", "a", "c"]) remember(map, key, key, 2);
  assert.deepEqual([...map.keys()], ["a", "c"]);
});

/** A page with one graph, and a server that answers as told. */
function page(answers, nodes = [{ id: 3, type: "KSampler", badges: [] }]) {
  const listeners = new Map();
  const root = { id: "g", nodes };
  for (const node of nodes) node.graph = root;
  const made = {
    root,
    isOn: true,
    redraws: 0,
    app: {
      rootGraph: root,
      canvas: { setDirty: () => (made.redraws += 1) },
      extensionManager: { setting: { get: (id) => id === SETTING && made.isOn } },
    },
    api: {
      addEventListener: (name, listener) => listeners.set(name, listener),
      fetchApi: async (path) => answers(path),
    },
    async end(name = "execution_success", detail = { prompt_id: "p1" }) {
      listeners.get(name)({ detail });
      await new Promise((resolve) => setImmediate(resolve));
    },
    texts: (node) => node.badges.map((badge) => badge().text),
  };
  made.extension = costBadges(made.app, made.api, () => class {
    constructor(options) {
      Object.assign(this, options);
    }
  });
  made.extension.setup();
  return made;
}

const answer = (body, ok = true) => ({ ok, json: async () => body });
const costs = (path) => answer(path.startsWith("/usage") ? { nodes: { 3: cost(2) } } : { workflow_id: "g" });

test("after a run its nodes have a badge each, also those made before the extension looked", async () => {
  const one = page(costs);
  await one.end();
  assert.deepEqual(one.texts(one.root.nodes[0]), ["2.00 s"]);
  one.extension.nodeCreated(one.root.nodes[0]);
  await one.end();
  assert.equal(one.root.nodes[0].badges.length, 1);
  assert.ok(one.redraws > 0);
});

test("the setting takes the badges away at once", async () => {
  const one = page(costs);
  await one.end();
  one.isOn = false;
  assert.deepEqual(one.texts(one.root.nodes[0]), [""]);
});

test("a run of another graph than the open one leaves the nodes alone", async () => {
  const one = page((path) => answer(path.startsWith("/usage") ? { nodes: { 3: cost(2) } } : { workflow_id: "other" }));
  one.extension.nodeCreated(one.root.nodes[0]);
  await one.end();
  assert.deepEqual(one.texts(one.root.nodes[0]), [""]);
});

test("another node with the id of one that has run has no badge", async () => {
  const one = page(costs);
  await one.end();
  const next = { id: 3, type: "SaveImage", badges: [], graph: one.root };
  one.extension.nodeCreated(next);
  assert.deepEqual(one.texts(next), [""]);
});

test("a server that fails, or answers nonsense, breaks nothing", async (context) => {
  context.mock.method(console, "warn", () => {});
  for (const broken of [
    () => answer({}, false),
    () => answer(null),
    () => answer({ nodes: null }),
    () => {
      throw new TypeError("down");
    },
  ]) {
    const one = page(broken);
    one.extension.nodeCreated(one.root.nodes[0]);
    await one.end();
    assert.deepEqual(one.texts(one.root.nodes[0]), [""]);
  }
});

test("nodes without room for badges, and messages without a prompt, are left alone", async () => {
  const one = page(costs, [{ id: 3, type: "KSampler" }]);
  await one.end("execution_error");
  await one.end("execution_interrupted", null);
  assert.equal(one.root.nodes[0].badges, undefined);
});
