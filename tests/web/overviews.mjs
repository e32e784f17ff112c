/** Build what the server tells the dashboard, with sensible values for what a test does not care about. */

export const NOW = 1_700_000_060;

export function tenant(name, more = {}) {
  return {
    tenant: name,
    weight: 1,
    pending: 0,
    running: 0,
    service_s: { gpu: 0, cpu: 0 },
    v_time_s: 0,
    ahead_s: 0,
    limits: { max_queued: null, max_running: null },
    ...more,
  };
}

export function prompt(id, name = "alice", more = {}) {
  const times = { created_s: NOW - 30, started_s: null };
  return { prompt_id: id, tenant: name, status: "pending", node: null, ...times, ...more };
}

export function worker(slot, state = "ready", more = {}) {
  return {
    slot,
    worker: `${slot}.0`,
    state,
    pid: 7,
    restarts: 0,
    device_name: "cpu",
    device_total_bytes: 4 * 1024 ** 3,
    device_free_bytes: 1024 ** 3,
    resident_bytes: 1024 ** 2,
    arena_used_bytes: 512,
    arena_bytes: 2048,
    weights_bytes: 0,
    running: [],
    memory: null,
    ...more,
  };
}

export function model(more = {}) {
  return {
    name: "dream.safetensors",
    kind: "unet",
    variant: "",
    layers: 10,
    resident: [[0, 4]],
    empty: [],
    prefix: 2,
    is_in_use: false,
    total_bytes: 1000,
    resident_bytes: 400,
    ...more,
  };
}

export function memory(more = {}) {
  return {
    device: { budget_bytes: 1024, used_bytes: 512, claimed_bytes: 256 },
    host: { budget_bytes: 0, used_bytes: 0, models: 0 },
    arena: { total_bytes: 2048, used_bytes: 512, blocks: 3, largest_free_bytes: 1024 },
    counters: { resident_layers: 0, host_layers: 0, disk_layers: 0, disk_bytes: 0, host_bytes: 0, evicted_layers: 0 },
    models: [model()],
    more_models: 0,
    link_s: null,
    ...more,
  };
}

export function stretch(id, began, ended, more = {}) {
  return {
    id,
    worker: "w0.0",
    lane: "gpu",
    tenant: "alice",
    prompt_id: "p1",
    node: "3",
    function: "denoise.step",
    outcome: "done",
    began_s: NOW + began,
    ended_s: NOW + ended,
    calls: 1,
    held_s: ended - began,
    load_s: 0,
    charged_s: ended - began,
    ...more,
  };
}

export function sample(ago, shares, more = {}) {
  return { at_s: NOW - ago, lanes: 1, others: 0, shares, ...more };
}

export function overview(more = {}) {
  return {
    cursor: "c.1.1",
    is_full: true,
    now_s: NOW,
    sample_s: 2,
    tenant: "alice",
    is_operator: true,
    tenants: [tenant("alice")],
    tenants_hidden: 0,
    queue: [],
    workers: [worker("w0")],
    recovery: {
      workers_lost: 0,
      steps_rerun: 0,
      restored: 0,
      checkpoints: 0,
      checkpoint_bytes: 0,
      checkpoint_steps: 0,
    },
    running: [],
    samples: [],
    stretches: [],
    ...more,
  };
}
