import assert from "node:assert/strict";
import { test } from "node:test";

import { checkpointsOf, DEMO_CHECKPOINT, isDemoOnly, needsOurGraph, replaceGraph } from "../../web/first_graph.js";

const definition = (spec) => ({ CheckpointLoaderSimple: { input: { required: { ckpt_name: spec } } } });

test("checkpoints are read from both forms of a combo input", () => {
  assert.deepEqual(checkpointsOf(definition([["a", "b"], {}])), ["a", "b"]);
  assert.deepEqual(checkpointsOf(definition(["COMBO", { options: ["a"] }])), ["a"]);
});

test("a server without the loader has no checkpoints", () => {
  assert.deepEqual(checkpointsOf({}), []);
});

test("our graph is for users without a checkpoint of their own", () => {
  assert.ok(isDemoOnly([DEMO_CHECKPOINT]));
  assert.ok(!isDemoOnly([DEMO_CHECKPOINT, "mine.safetensors"]));
  assert.ok(!isDemoOnly(["mine.safetensors"]));
  assert.ok(!isDemoOnly([]));
});

test("a default graph with nodes that this server lacks is no good", () => {
  const known = { ...definition([[DEMO_CHECKPOINT, "mine.safetensors"]]), KSampler: {} };
  assert.ok(needsOurGraph({ nodes: [{ type: "KSampler" }, { type: "Unheard" }] }, known));
  assert.ok(!needsOurGraph({ nodes: [{ type: "KSampler" }, { type: "MarkdownNote" }] }, known));
});

test("a default graph that runs is replaced only for users without own checkpoints, and only if the demo is there", () => {
  const graph = { nodes: [] };
  assert.ok(needsOurGraph(graph, definition([[DEMO_CHECKPOINT]])));
  assert.ok(!needsOurGraph(graph, definition([["mine.safetensors"]])));
});

test("the default graph is replaced in place and shares nothing with its source", () => {
  const target = { nodes: [1], leftover: true };
  const source = { nodes: [{ id: 2 }] };
  replaceGraph(target, source);
  assert.deepEqual(target, { nodes: [{ id: 2 }] });
  target.nodes[0].id = 3;
  assert.equal(source.nodes[0].id, 2);
});
