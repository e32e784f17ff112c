/**
 * Hold the state of the Workers tab as one reducer: state and event in, next state out, no I/O.
 *
 * @typedef {object} Worker  One worker slot, as `GET /comfyserverless/workers` gives it; sizes in bytes.
 * @property {string} slot
 * @property {string} state  starting, ready, busy or lost
 * @property {number | null} pid
 * @property {number} restarts
 * @property {string} device_name
 * @property {string} device_kind
 * @property {number} device_total_bytes
 * @property {number} device_free_bytes
 * @property {number} resident_bytes
 * @property {number} arena_used_bytes
 * @property {number} arena_bytes
 * @property {number} weights_bytes
 * @property {string[]} running  functions that run now
 *
 * @typedef {object} State
 * @property {Worker[]} workers  in slot order
 * @property {number} remaining  prompts that wait or run
 * @property {string | null} problem  why the workers shown may be stale
 *
 * @typedef {{type: "workers", workers: Worker[]}
 *   | {type: "workersFailed", problem: string}
 *   | {type: "queue", remaining: number}} Event
 */

/** @type {Readonly<State>} */
export const initialState = Object.freeze({ workers: [], remaining: 0, problem: null });

/**
 * Return the state after an event; an unknown event changes nothing.
 *
 * @param {State} state
 * @param {Event} event
 * @returns {State}
 */
export function reduce(state, event) {
  switch (event.type) {
    case "workers":
      return { ...state, workers: [...event.workers].sort(bySlot), problem: null };
    case "workersFailed":
      return { ...state, problem: event.problem };
    case "queue":
      return { ...state, remaining: event.remaining };
    default:
      return state;
  }
}

/**
 * Keep one state, and tell a listener after each change.
 *
 * @param {(state: State) => void} onChange
 */
export function createStore(onChange) {
  let state = initialState;
  return {
    get state() {
      return state;
    },
    /** @param {Event} event */
    dispatch(event) {
      const next = reduce(state, event);
      if (next === state) return;
      state = next;
      onChange(state);
    },
  };
}

/** @param {Worker} a @param {Worker} b */
function bySlot(a, b) {
  return a.slot.localeCompare(b.slot, "en", { numeric: true });
}
