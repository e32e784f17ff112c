/**
 * Ask the server what is new, about once a second, while somebody can see it.
 *
 * A question that fails is asked again later and later, up to every half minute; a page in the background asks
 * nothing, and asks at once when it comes back. One question is under way at a time.
 */

export const EVERY_MS = 1000;
const TIMEOUT_MS = 15_000;
const SLOWEST_MS = 30_000;

/**
 * Return how long to wait before the next question.
 *
 * @param {number} failures  in a row
 */
export function delayMs(failures) {
  return Math.min(EVERY_MS * 2 ** Math.min(failures, 10), SLOWEST_MS);
}

/**
 * Begin to ask.
 *
 * @param {(path: string, init: RequestInit) => Promise<Response>} ask
 * @param {(event: import("./store.js").Event) => void} dispatch
 * @param {{visibilityState: string, addEventListener: Function, removeEventListener: Function}} page
 */
export function startFeed(ask, dispatch, page = document) {
  let cursor = "";
  let failures = 0;
  let isPaused = false;
  let isAsking = false;
  let isStopped = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const mayAsk = () => !isStopped && !isPaused && page.visibilityState !== "hidden";

  async function tick() {
    clearTimeout(timer);
    if (isAsking || !mayAsk()) return;
    isAsking = true;
    const outcome = await question();
    isAsking = false;
    if (isStopped) return;
    if (outcome) dispatch(outcome);
    if (mayAsk()) timer = setTimeout(tick, delayMs(failures));
  }

  /** @returns {Promise<import("./store.js").Event>} */
  async function question() {
    try {
      const path = `/comfyserverless/overview?since=${encodeURIComponent(cursor)}`;
      const answer = await ask(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (answer.status === 401 || answer.status === 403) {
        failures += 1;
        cursor = "";
        return { type: "denied" };
      }
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const overview = await answer.json();
      cursor = overview.cursor;
      failures = 0;
      return { type: "overview", overview };
    } catch (error) {
      failures += 1;
      const why = error?.name === "TimeoutError" ? "no answer in time" : (error?.message ?? "no answer");
      return { type: "failed", problem: `The server cannot be reached: ${why}` };
    }
  }

  page.addEventListener("visibilitychange", tick);
  tick();
  return {
    /** Ask at once, for example after something was changed. */
    hurry: tick,
    /** @param {boolean} shallPause */
    pause(shallPause) {
      isPaused = shallPause;
      tick();
    },
    stop() {
      isStopped = true;
      clearTimeout(timer);
      page.removeEventListener("visibilitychange", tick);
    },
  };
}
