import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { delayMs, EVERY_MS, startFeed } from "../../web/dashboard/feed.js";

/** A page that can be hidden, a server that answers as told, and what the feed made of it. */
function world(...answers) {
  const listeners = new Set();
  const made = {
    asked: [],
    events: [],
    page: {
      visibilityState: "visible",
      addEventListener: (_, listener) => listeners.add(listener),
      removeEventListener: (_, listener) => listeners.delete(listener),
    },
    show(visibilityState) {
      made.page.visibilityState = visibilityState;
      for (const listener of listeners) listener();
    },
    ask: async (path) => {
      made.asked.push(path);
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      if (answer instanceof Error) throw answer;
      return answer;
    },
  };
  made.feed = startFeed(made.ask, (event) => made.events.push(event), made.page);
  return made;
}

const ok = (cursor) => ({ ok: true, status: 200, json: async () => ({ cursor }) });
const settle = async () => {
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
};
const pass = async (ms) => {
  await settle();
  mock.timers.tick(ms);
  await settle();
};

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
});

test("each question names the cursor of the answer before", async () => {
  const { asked, events, feed } = world(ok("a b"), ok("c"));
  await pass(EVERY_MS);
  assert.deepEqual(asked, ["/comfyserverless/overview?since=", "/comfyserverless/overview?since=a%20b"]);
  assert.deepEqual(events.map((each) => each.type), ["overview", "overview"]);
  feed.stop();
});

test("a page in the background asks nothing, and at once when it is back", async () => {
  const one = world(ok("a"));
  await settle();
  one.show("hidden");
  await pass(EVERY_MS * 100);
  assert.equal(one.asked.length, 1);
  one.show("visible");
  await settle();
  assert.equal(one.asked.length, 2);
  one.feed.stop();
});

test("a paused feed asks nothing until it goes on", async () => {
  const { asked, feed } = world(ok("a"));
  await settle();
  feed.pause(true);
  await pass(EVERY_MS * 10);
  assert.equal(asked.length, 1);
  feed.pause(false);
  await settle();
  assert.equal(asked.length, 2);
  feed.stop();
});

test("failures are told, and asked about later and later", async () => {
  const { asked, events, feed } = world(new TypeError("down"), { ok: false, status: 500 }, ok("a"));
  await pass(EVERY_MS);
  assert.equal(asked.length, 1);
  await pass(EVERY_MS);
  assert.equal(asked.length, 2);
  assert.match(events[0].problem, /down/);
  assert.match(events[1].problem, /500/);
  await pass(delayMs(2));
  assert.equal(events[2].type, "overview");
  assert.ok(delayMs(100) <= 30_000);
  feed.stop();
});

test("a session that has ended is told as such, and the next one begins from nothing", async () => {
  const { asked, events, feed } = world(ok("a"), { ok: false, status: 401 }, ok("b"));
  await pass(EVERY_MS);
  await pass(delayMs(1));
  assert.deepEqual(events.map((each) => each.type), ["overview", "denied", "overview"]);
  assert.equal(asked[2], "/comfyserverless/overview?since=");
  feed.stop();
});

test("a feed that was stopped tells nothing any more", async () => {
  const { asked, events, feed } = world(ok("a"));
  feed.stop();
  await pass(EVERY_MS * 10);
  assert.deepEqual([asked.length, events.length], [1, 0]);
});
