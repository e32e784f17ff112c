import assert from "node:assert/strict";
import { test } from "node:test";

import { layerRects, shortModelName, shownModels, weightsParts } from "../../web/dashboard/panels/memory.js";
import { queuePanel, unlisted } from "../../web/dashboard/panels/queue.js";
import { recoveryPanel } from "../../web/dashboard/panels/recovery.js";
import { sharesPanel } from "../../web/dashboard/panels/shares.js";
import { figures, summaryPanel } from "../../web/dashboard/panels/summary.js";
import { rankedTenants, tenantsPanel } from "../../web/dashboard/panels/tenants.js";
import { barLines, timelinePanel } from "../../web/dashboard/panels/timeline.js";
import { workersPanel } from "../../web/dashboard/panels/workers.js";
import { initialState, reduce } from "../../web/dashboard/store.js";
import { findAll, textOf } from "../../web/dashboard/vdom.js";
import { dashboard } from "../../web/dashboard/view.js";
import { memory, model, NOW, overview, prompt, sample, stretch, tenant, worker } from "./overviews.mjs";

const state = (more) => reduce(initialState, { type: "overview", overview: overview(more) });
const tell = () => {
  const told = [];
  const note = (name) => (...words) => told.push([name, ...words]);
  const actions = { cancel: note("cancel"), toggle: note("toggle"), pause: note("pause"), showTip: note("tip"), hideTip: note("hide") };
  return { told, actions };
};
const byTag = (tree, tag) => findAll(tree, (node) => node.tag === tag);

test("own prompts can be cancelled, those of others cannot", () => {
  const { told, actions } = tell();
  const tree = queuePanel(state({ tenants: [tenant("alice"), tenant("bob")], queue: [prompt("p1"), prompt("p2", "bob")] }), actions);
  const buttons = byTag(tree, "button");
  assert.deepEqual(buttons.map((each) => each.attrs["aria-label"]), ["Cancel prompt p1"]);
  buttons[0].attrs.onclick();
  assert.deepEqual(told, [["cancel", "p1"]]);
});

test("a prompt that is being cancelled cannot be cancelled again", () => {
  const shown = reduce(state({ queue: [prompt("p1")] }), { type: "cancel", prompt: "p1" });
  const [button] = byTag(queuePanel(shown, tell().actions), "button");
  assert.equal(button.attrs.disabled, true);
});

test("running prompts come first, with how long they run", () => {
  const running = prompt("p9", "alice", { status: "running", started_s: NOW - 5, node: "3" });
  const rows = byTag(queuePanel(state({ queue: [prompt("p1"), running] }), tell().actions), "tr").slice(1);
  assert.deepEqual(rows.map((each) => textOf(each)), ["runs p9 3 5 s Cancel", "waits p1 – 30 s Cancel"]);
});

test("prompts that the server did not list are counted", () => {
  const shown = state({ tenants: [tenant("alice", { pending: 1000, running: 1 })], queue: [prompt("p1")] });
  assert.equal(unlisted(shown), 1000);
  assert.match(textOf(queuePanel(shown, tell().actions)), /1,000 more wait/);
});

test("an empty queue says so", () => {
  assert.match(textOf(queuePanel(state({}), tell().actions)), /Nothing waits/);
});

test("tenants with work come first and long lists are short until asked for", () => {
  const tenants = Array.from({ length: 50 }, (_, at) => tenant(`t${at}`, { pending: at === 40 ? 1 : 0 }));
  const shown = state({ tenants });
  assert.equal(rankedTenants(shown)[0].tenant, "t40");
  const { told, actions } = tell();
  const tree = tenantsPanel(shown, actions);
  assert.equal(byTag(tree, "tr").length, 11);
  byTag(tree, "button")[0].attrs.onclick();
  assert.deepEqual(told, [["toggle", "tenants"]]);
  const whole = tenantsPanel(reduce(shown, { type: "toggle", list: "tenants" }), actions);
  assert.equal(byTag(whole, "tr").length, 51);
});

test("limits of a tenant stand beside its counts", () => {
  const limits = { max_queued: 5, max_running: null };
  assert.match(textOf(tenantsPanel(state({ tenants: [tenant("alice", { pending: 2, limits })] }), tell().actions)), /2 \/ 5/);
});

test("summary adds up what all tenants have", () => {
  const shown = state({
    tenants: [tenant("alice", { running: 1, pending: 2 }), tenant("bob", { pending: 3 }), tenant("carol")],
    workers: [worker("w0", "busy"), worker("w1", "lost")],
    samples: [sample(0, [["alice", 0.25, 0], ["bob", 0.5, 0]])],
  });
  const all = figures(shown);
  assert.deepEqual(
    [all.running, all.pending, all.busyTenants, all.readyWorkers, all.workers, all.troubled, all.heldRatio],
    [1, 5, 2, 1, 2, 1, 0.75],
  );
  assert.match(textOf(summaryPanel(shown)), /1 lost/);
});

test("layers are away unless in memory, and those without weights are neither", () => {
  const rects = layerRects(model({ resident: [[0, 4], [6, 99]], empty: [[8, 9]], prefix: 3 }));
  assert.deepEqual(
    rects.map(({ kind, first, end }) => [kind, first, end]),
    [["away", 0, 10], ["resident", 0, 4], ["resident", 6, 10], ["empty", 8, 9], ["prefix", 0, 3]],
  );
});

test("models in use come first, and LoRAs are named with their base", () => {
  const models = [model({ name: "a.safetensors" }), model({ name: "b.ckpt", variant: "ink 0.8", is_in_use: true })];
  assert.deepEqual(shownModels(models).map(shortModelName), ["b + ink 0.8", "a"]);
});

test("claimed memory is shown beside weights", () => {
  assert.deepEqual(
    weightsParts({ budget_bytes: 100, used_bytes: 50, claimed_bytes: 25 }).map((each) => each.ratio),
    [0.5, 0.25],
  );
  assert.equal(weightsParts({ budget_bytes: 0, used_bytes: 0, claimed_bytes: 0 })[0].ratio, 0);
});

test("a worker shows its memory by model, and what it has not told is left out", () => {
  const told = workersPanel(state({ workers: [worker("w0", "busy", { memory: memory() })] }), tell().actions);
  assert.match(textOf(told), /512 B of 1 KiB +· 256 B claimed/);
  assert.match(textOf(told), /3 blocks, largest free 1 KiB/);
  assert.deepEqual(
    findAll(told, (node) => node.attrs.class === "csl-strip").map((each) => each.attrs["aria-label"]),
    ["4 of 10 layers in memory, 400 B of 1000 B, prefix of 2"],
  );
  assert.doesNotMatch(textOf(workersPanel(state({ workers: [worker("w0")] }), tell().actions)), /claimed|blocks|Host tier/);
});

test("workers that start or are lost say so", () => {
  const tree = workersPanel(state({ workers: [worker("w0", "starting"), worker("w1", "lost")] }), tell().actions);
  assert.match(textOf(tree), /w0 starting.*will join.*w1 lost, restarting.*has ended/);
  assert.match(textOf(workersPanel(state({ workers: [] }), tell().actions)), /No worker yet/);
});

test("a bar tells function, node, prompt, tenant and cost", () => {
  const call = { ...stretch(1, -9, -4, { calls: 20, load_s: 0.5 }), row: 0 };
  const text = textOf(barLines(state({}), { key: "1", row: 0, from: 0, to: 1, isRunning: false, call }));
  for (const part of ["denoise.step", "alice", "Node 3", "p1", "20 calls", "500 ms of it loading", "Charged 5.00 s", "4.00 s ago"]) {
    assert.ok(text.includes(part), `${part} in ${text}`);
  }
});

test("bars of one tenant are coloured by function, those of many by tenant", () => {
  const colors = (shown) =>
    findAll(timelinePanel(shown, tell().actions), (node) => "data-bar" in node.attrs).map((each) => each.attrs.style.fill);
  const stretches = [stretch(1, -9, -8), stretch(2, -7, -6, { function: "vae.decode" })];
  assert.equal(new Set(colors(state({ stretches }))).size, 2);
  const many = state({ stretches: [...stretches, stretch(3, -5, -4, { tenant: "bob" })], tenants: [tenant("alice"), tenant("bob")] });
  assert.deepEqual(colors(many), ["var(--csl-t0)", "var(--csl-t0)", "var(--csl-t1)"]);
});

test("arrow keys go from bar to bar", () => {
  const { told, actions } = tell();
  const tree = timelinePanel(state({ stretches: [stretch(1, -9, -8), stretch(2, -7, -6, { function: "vae.decode" })] }), actions);
  const [lane] = findAll(tree, (node) => node.tag === "svg");
  const picture = { dataset: {} };
  const press = (key) => lane.attrs.onkeydown({ key, currentTarget: picture, preventDefault() {} });
  for (const key of ["ArrowRight", "ArrowRight", "ArrowRight", "Home", "Tab", "Escape"]) press(key);
  const shown = told.map(([name, , lines]) => (name === "tip" ? textOf(lines[0]) : name));
  assert.deepEqual(shown, ["denoise.step", "vae.decode", "vae.decode", "denoise.step", "hide"]);
});

test("shares are drawn for many, and one user is not told of being ahead of nobody", () => {
  const samples = [sample(4, [["alice", 0.5, 1]]), sample(2, [["alice", 0.5, 1]])];
  assert.doesNotMatch(textOf(sharesPanel(state({ samples }), tell().actions)), /vTime/);
  const many = state({ samples, tenants: [tenant("alice"), tenant("bob")] });
  assert.match(textOf(sharesPanel(many, tell().actions)), /Share of the GPU lanes.*vTime ahead/);
  assert.match(textOf(sharesPanel(state({}), tell().actions)), /No GPU lane was used/);
});

test("recovery tells what losses have cost", () => {
  const recovery = { workers_lost: 2, steps_rerun: 7, restored: 1, checkpoints: 1, checkpoint_bytes: 2048, checkpoint_steps: 5 };
  const text = textOf(recoveryPanel(state({ recovery })));
  assert.match(text, /2 workers were lost.*7.*1 checkpoint, 2 KiB, at most 5 steps apart/);
});

test("hostile names stay text", () => {
  const evil = '"><img src=x onerror=alert(1)>';
  const shown = state({
    tenants: [tenant(evil), tenant("bob")],
    queue: [prompt(evil, evil)],
    stretches: [stretch(1, -9, -8, { tenant: evil, node: evil, function: evil })],
    samples: [sample(2, [[evil, 0.5, 0]])],
    workers: [worker(evil, "busy", { device_name: evil, memory: memory({ models: [model({ name: evil })] }) })],
  });
  const tree = dashboard(shown, tell().actions, null);
  assert.equal(byTag(tree, "img").length, 0);
  assert.ok(textOf(tree).includes(evil));
});

test("who is not logged in is led to the login and sees nothing else", () => {
  const tree = dashboard(reduce(state({}), { type: "denied" }), tell().actions, null);
  assert.deepEqual(byTag(tree, "a").map((each) => each.attrs.href), ["/login"]);
  assert.equal(byTag(tree, "section").length, 0);
});

test("a problem is told, and the last picture stays", () => {
  const tree = dashboard(reduce(state({}), { type: "failed", problem: "gone" }), tell().actions, null);
  assert.match(textOf(tree), /Not up to date.*gone.*Workers/);
});
