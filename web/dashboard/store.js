/**
 * Hold what the dashboard shows as one reducer: state and event in, next state out, no I/O.
 *
 * The server tells the state of tenants, queue and workers whole, and of the last minutes only what is new; here
 * they become one picture. Times are Unix seconds of the server's clock.
 *
 * @typedef {object} Tenant
 * @property {string} tenant
 * @property {number} weight
 * @property {number} pending
 * @property {number} running
 * @property {Record<string, number>} service_s  by lane
 * @property {number} v_time_s
 * @property {number} ahead_s  vTime less the virtual time of the GPU lanes
 * @property {{max_queued: number | null, max_running: number | null}} limits
 *
 * @typedef {object} Prompt
 * @property {string} prompt_id
 * @property {string} tenant
 * @property {"pending" | "running"} status
 * @property {number} created_s
 * @property {number | null} started_s
 * @property {string | null} node
 *
 * @typedef {object} Model  One model in a worker's memory; runs of layers are [first, end).
 * @property {string} name
 * @property {string} kind
 * @property {string} variant
 * @property {number} layers
 * @property {[number, number][]} resident
 * @property {[number, number][]} empty
 * @property {number} prefix
 * @property {boolean} is_in_use
 * @property {number} total_bytes
 * @property {number} resident_bytes
 *
 * @typedef {object} Memory
 * @property {{budget_bytes: number, used_bytes: number, claimed_bytes: number}} device
 * @property {{budget_bytes: number, used_bytes: number, models: number}} host
 * @property {{total_bytes: number, used_bytes: number, blocks: number, largest_free_bytes: number}} arena
 * @property {Record<string, number>} counters
 * @property {Model[] | null} models
 * @property {number} more_models
 * @property {number | null} link_s
 *
 * @typedef {object} Worker
 * @property {string} slot
 * @property {string | null} worker  its incarnation now
 * @property {"starting" | "ready" | "busy" | "lost"} state
 * @property {number | null} pid
 * @property {number} restarts
 * @property {string} device_name
 * @property {number} device_total_bytes
 * @property {number} device_free_bytes
 * @property {number} resident_bytes
 * @property {number} arena_used_bytes
 * @property {number} arena_bytes
 * @property {number} weights_bytes
 * @property {string[]} running
 * @property {Memory | null} [memory]
 *
 * @typedef {object} Staying  A call that is in a lane now.
 * @property {string} worker
 * @property {string} lane
 * @property {string} tenant
 * @property {string} prompt_id
 * @property {string} node
 * @property {string} function
 * @property {number} began_s
 *
 * @typedef {Staying & {id: number, outcome: string, ended_s: number, calls: number, held_s: number,
 *   load_s: number, charged_s: number, row?: number}} Stretch
 *   Calls of one kind that followed each other closely. row: where in its lane it is drawn.
 *
 * @typedef {{at_s: number, lanes: number, others: number, shares: [string, number, number][]}} Sample
 *   shares: tenant, part of the GPU lanes it held, seconds that it is ahead.
 *
 * @typedef {object} Overview  Body of `GET /comfyserverless/overview`.
 * @property {string} cursor
 * @property {boolean} is_full
 * @property {number} now_s
 * @property {number} sample_s
 * @property {string} tenant
 * @property {boolean} is_operator
 * @property {Tenant[]} tenants
 * @property {number} tenants_hidden
 * @property {Prompt[]} queue
 * @property {Worker[]} workers
 * @property {Record<string, number>} recovery
 * @property {Staying[]} running
 * @property {Sample[]} samples
 * @property {Stretch[]} stretches
 *
 * @typedef {object} State
 * @property {"connecting" | "live" | "stale" | "denied"} status
 * @property {string | null} problem
 * @property {Overview | null} overview  the latest, for all but samples and stretches
 * @property {Sample[]} samples  of the last ten minutes, oldest first
 * @property {Stretch[]} stretches  of the last minute, by id
 * @property {ReadonlyMap<string, number>} colors  tenant -> number of its colour, in order of appearance
 * @property {ReadonlySet<string>} cancelling  prompts that the user has cancelled and that are still there
 * @property {ReadonlySet<string>} opened  lists that the user wants to see whole
 * @property {boolean} isPaused
 *
 * @typedef {{type: "overview", overview: Overview} | {type: "failed", problem: string} | {type: "denied"}
 *   | {type: "cancel", prompt: string} | {type: "cancelFailed", prompt: string, problem: string}
 *   | {type: "toggle", list: string} | {type: "pause", isPaused: boolean}} Event
 */

export const SHARES_S = 600;
export const TIMELINE_S = 60;
export const LANE_ROWS = 4;

/** @type {Readonly<State>} */
export const initialState = Object.freeze({
  status: "connecting",
  problem: null,
  overview: null,
  samples: [],
  stretches: [],
  colors: new Map(),
  cancelling: new Set(),
  opened: new Set(),
  isPaused: false,
});

/**
 * Return the state after an event; an unknown event changes nothing.
 *
 * @param {State} state
 * @param {Event} event
 * @returns {State}
 */
export function reduce(state, event) {
  switch (event.type) {
    case "overview":
      return onOverview(state, event.overview);
    case "failed":
      return { ...state, status: state.overview ? "stale" : "connecting", problem: event.problem };
    case "denied":
      return { ...initialState, opened: state.opened, status: "denied" };
    case "cancel":
      return { ...state, cancelling: new Set(state.cancelling).add(event.prompt), problem: null };
    case "cancelFailed":
      return { ...state, cancelling: without(state.cancelling, event.prompt), problem: event.problem };
    case "toggle":
      return { ...state, opened: toggled(state.opened, event.list) };
    case "pause":
      return { ...state, isPaused: event.isPaused };
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
  /** @type {State} */
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

/** @param {State} state @param {Overview} overview @returns {State} */
function onOverview(state, overview) {
  const samples = overview.is_full ? [] : state.samples;
  const stretches = overview.is_full ? [] : state.stretches;
  const there = new Set(overview.queue.map((prompt) => prompt.prompt_id));
  return {
    ...state,
    status: "live",
    problem: null,
    overview: { ...overview, workers: [...overview.workers].sort(bySlot), samples: [], stretches: [] },
    samples: [...samples, ...overview.samples].filter((each) => each.at_s > overview.now_s - SHARES_S),
    stretches: mergeStretches(stretches, overview),
    colors: withColors(state.colors, overview),
    cancelling: new Set([...state.cancelling].filter((prompt) => there.has(prompt))),
  };
}

/**
 * Replace what changed, add what is new to a free row of its lane, and forget what ended too long ago.
 *
 * @param {Stretch[]} known @param {Overview} overview
 */
function mergeStretches(known, overview) {
  const from_s = overview.now_s - TIMELINE_S;
  const merged = new Map(known.map((each) => [each.id, each]));
  const added = [];
  for (const each of overview.stretches) {
    const before = merged.get(each.id);
    if (before) merged.set(each.id, { ...each, row: before.row });
    else added.push(each);
  }
  added.sort((a, b) => a.began_s - b.began_s);
  for (const each of added) merged.set(each.id, { ...each, row: freeRow(merged.values(), each) });
  return [...merged.values()].filter((each) => each.ended_s > from_s);
}

/**
 * Return the first row of a lane that nothing else takes at the time of a stretch; the last one takes the rest.
 *
 * @param {Iterable<Stretch>} others
 * @param {{worker: string, lane: string, began_s: number, ended_s?: number}} wanted
 */
export function freeRow(others, wanted) {
  const taken = new Set();
  const ended_s = wanted.ended_s ?? Infinity;
  for (const each of others) {
    if (each.worker !== wanted.worker || each.lane !== wanted.lane) continue;
    if (each.ended_s > wanted.began_s + 0.005 && each.began_s < ended_s - 0.005) taken.add(each.row);
  }
  let row = 0;
  while (row < LANE_ROWS - 1 && taken.has(row)) row += 1;
  return row;
}

/** @param {ReadonlyMap<string, number>} colors @param {Overview} overview */
function withColors(colors, overview) {
  const seen = new Set(overview.tenants.map((each) => each.tenant));
  for (const each of overview.samples) for (const [tenant] of each.shares) seen.add(tenant);
  for (const each of overview.stretches) seen.add(each.tenant);
  const fresh = [...seen].filter((tenant) => !colors.has(tenant)).sort();
  if (fresh.length === 0) return colors;
  const next = new Map(colors);
  for (const tenant of fresh) next.set(tenant, next.size);
  return next;
}

/** @param {ReadonlySet<string>} set @param {string} item */
function without(set, item) {
  return new Set([...set].filter((each) => each !== item));
}

/** @param {ReadonlySet<string>} set @param {string} item */
function toggled(set, item) {
  return set.has(item) ? without(set, item) : new Set(set).add(item);
}

/** @param {Worker} a @param {Worker} b */
function bySlot(a, b) {
  return a.slot.localeCompare(b.slot, "en", { numeric: true });
}
