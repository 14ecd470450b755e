// The one model of the run that all views read: tasks by number, folded from events (and, live, from a snapshot).
// observe/fold.py folds the same events into the same rows; tests/devtools/browser/test_page.py compares the two.

const KEPT_FINISHED = 20_000;
const KEPT_EVENTS = 60_000;
const KEPT_NOTES = 500;

export const laneKey = ({ priority, demand, slot }, scope) =>
  `${priority}|${scope}|${JSON.stringify(Object.entries(demand ?? {}).sort())}|${slot ?? true}`;

/** The lane of a task, which it never changes: found once. */
export const laneOf = (task) => (task.lane ??= laneKey(task, task.scope));

/** Whether a running task has a slot: it takes one and does not lend it while it blocks. */
export const holdsSlot = (task) => task.slot && !task.lends;

/** Generated ids, as the kernel makes them. */
const generatedId = (number) => `@${String(number).padStart(10, "0")}`;

export class Store {
  constructor() {
    this.reset();
  }

  reset() {
    this.tasks = new Map();
    this.scopes = new Map(); // key -> {key, parent, state}
    this.laneCauses = new Map(); // lane key -> {cause, of}
    this.periodics = new Map(); // runtime id -> what the events tell
    this.notes = []; // refusals, skipped ticks, switched-off periodics: events without a task
    this.events = [];
    this.snapshot = null;
    this.seq = 0;
    this.skipped = 0;
    this.firstNs = null;
    this.lastNs = 0;
    this.version = 0; // grows with every change
    this.finishedOrder = [];
    this.tick = null;
    this.successors = new Map(); // number -> numbers of tasks that await it
  }

  /** Take a row of the server's table; events older than the row change it no more. */
  addRow(row) {
    const known = this.tasks.get(row.number);
    if (known && known.seq > row.seq) return;
    const task = Object.assign(known ?? {}, row);
    this.tasks.set(row.number, task);
    this.#link(task);
    this.#seen(row.submitted_ns);
    this.#seen(row.ended_ns);
    if (task.outcome && !known?.counted) this.#ended(task);
    this.version += 1;
  }

  /** Take one event. */
  apply(event) {
    if (event.seq <= this.seq && this.events.length && event.seq <= this.events.at(-1).seq) return;
    this.seq = Math.max(this.seq, event.seq);
    this.version += 1;
    this.#seen(event.time_ns);
    this.events.push(event);
    if (this.events.length > 2 * KEPT_EVENTS) this.events.splice(0, KEPT_EVENTS);
    const details = event.details ?? {};
    if (event.number !== undefined) this.#task(event, details);
    else if (event.kind.startsWith("SCOPE_")) this.#scope(event, details);
    else if (event.kind.startsWith("PERIODIC_")) this.#periodic(event, details);
    else if (event.kind === "LANE_WAITS") {
      const key = laneKey(details, event.scope);
      this.laneCauses.set(key, { cause: details.cause, of: details.of });
    } else if (event.kind === "TASK_DROPPED" || event.kind === "TASK_REJECTED") this.#note(event);
  }

  #task(event, details) {
    let task = this.tasks.get(event.number);
    if (task && event.seq <= task.seq) return;
    if (!task) {
      if (event.kind !== "TASK_SUBMITTED" && event.kind !== "TASK_RETRIED") return;
      task = this.#add(event, details);
    }
    task.seq = event.seq;
    STEPS[event.kind]?.(task, event, details);
    if (event.kind === "TASK_SUBMITTED") this.#link(task);
    if (task.outcome && !task.counted) this.#ended(task);
  }

  #add(event, details) {
    const task = {
      number: event.number, id: event.name ?? generatedId(event.number), scope: event.scope,
      state: details.state ?? "READY", priority: 50, demand: {}, devices: {}, slot: true, lends: false, attempt: 1, of: null, retried_as: null, after: [],
      after_ended: [], periodic: null, held_by: null, submitted_ns: event.time_ns, ready_ns: null, started_ns: null,
      ended_ns: null, paused_from: null, outcome: null, cause: null, root: null, waits: {}, starved_ns: 0, place: null,
      exit_code: null, exit_signal: null, peak_ram: null, cpu_ms: null, measured: null, overdrawn: false, ram: null, function: null, seq: 0,
    };
    const old = this.tasks.get(details.of);
    if (old?.number < task.number) {
      const { priority, demand, slot, after, after_ended, periodic, function: name } = old;
      Object.assign(task, { priority, demand, slot, after, after_ended, periodic, function: name, of: old.number });
      old.retried_as = task.number;
    }
    if (this.tick && event.cause === this.tick.seq) task.periodic = this.tick.name;
    this.tasks.set(task.number, task);
    return task;
  }

  #link(task) {
    for (const number of [...task.after, ...task.after_ended]) {
      const list = this.successors.get(number);
      if (!list) this.successors.set(number, new Set([task.number]));
      else list.add(task.number);
    }
  }

  #ended(task) {
    task.counted = true;
    this.finishedOrder.push(task.number);
    while (this.finishedOrder.length > KEPT_FINISHED) {
      const gone = this.finishedOrder.shift();
      this.tasks.delete(gone);
      this.successors.delete(gone);
    }
  }

  #scope(event, details) {
    if (!event.scope) return; // the authority's own, which holds all others
    const scope = this.scopes.get(event.scope) ?? { key: event.scope, parent: null };
    if (event.kind === "SCOPE_CREATED") scope.parent = details.parent ?? null;
    const state = event.kind.slice(6);
    scope.state = { CREATED: "INIT", RESUMED: "RUNNING" }[state] ?? state;
    this.scopes.set(event.scope, scope);
  }

  #periodic(event, details) {
    const id = `${event.scope}/${event.name}`;
    const periodic = this.periodics.get(id) ?? { id, enabled: true, run_count: 0, skipped: 0, ticks: [] };
    if (event.kind === "PERIODIC_ADDED") periodic.interval_ms = details.interval_ns / 1e6;
    if (event.kind === "PERIODIC_TICK") {
      this.tick = { seq: event.seq, name: event.name };
      periodic.ticks.push([event.time_ns, "tick"]);
    }
    if (event.kind === "PERIODIC_SKIPPED") {
      periodic.skipped += 1;
      periodic.last_skip = details.code;
      periodic.ticks.push([event.time_ns, "skipped"]);
      this.#note(event);
    }
    if (event.kind === "PERIODIC_ENABLED") periodic.enabled = true;
    if (event.kind === "PERIODIC_DISABLED") {
      periodic.enabled = false;
      this.#note(event);
    }
    if (periodic.ticks.length > 200) periodic.ticks.splice(0, 100);
    this.periodics.set(id, periodic);
  }

  #note(event) {
    this.notes.push(event);
    if (this.notes.length > 2 * KEPT_NOTES) this.notes.splice(0, KEPT_NOTES);
  }

  #seen(ns) {
    if (ns === null || ns === undefined) return;
    if (this.firstNs === null || ns < this.firstNs) this.firstNs = ns;
    if (ns > this.lastNs) this.lastNs = ns;
  }

  /** Take the server's picture of now. */
  setSnapshot(snapshot) {
    this.snapshot = snapshot;
    this.version += 1;
    for (const lane of snapshot.lanes) {
      const key = laneKey(lane, lane.scope);
      this.laneCauses.set(key, { cause: lane.waits_for, of: lane.gate_scope ?? undefined });
    }
    for (const scope of snapshot.scopes) this.scopes.set(scope.key, { ...this.scopes.get(scope.key), ...scope });
  }

  /** Take the limits of a run that is over, the slots first, and its devices: of such a run there is no other picture. */
  setLimits([slots, ...budget], devices) {
    this.setSnapshot({ slots, budget, devices, lanes: [], scopes: [], periodics: [], running: [], counts: { starved: 0 } });
  }

  /** What a task waits for now; null if it does not wait. */
  reason(task) {
    if (task.outcome || isActive(task)) return null;
    if (task.state !== "READY") return task.held_by ?? "dependency";
    return this.laneCauses.get(laneOf(task))?.cause ?? "slot";
  }

  /** The newest attempt of a task that once had this number. */
  latest(number) {
    let task = this.tasks.get(number);
    while (task?.retried_as && this.tasks.has(task.retried_as)) task = this.tasks.get(task.retried_as);
    return task;
  }

  /** The tasks that this one awaited or awaits. */
  awaits(task) {
    return [...task.after, ...task.after_ended].map((number) => this.latest(number)).filter(Boolean);
  }

  /** The tasks that await this one. */
  awaitedBy(task) {
    const numbers = new Set();
    for (let each = task; each; each = each.of ? this.tasks.get(each.of) : null) {
      for (const number of this.successors.get(each.number) ?? []) numbers.add(number);
    }
    return [...numbers].map((number) => this.latest(number)).filter(Boolean);
  }

  /** Who holds what a waiting task waits for: running tasks, or unmet dependencies. */
  holders(task, reason = this.reason(task)) {
    if (reason === "dependency") return this.awaits(task).filter((other) => !other.outcome);
    const running = this.running();
    if (reason === "overlap") return running.filter((other) => other.periodic && other.periodic === task.periodic);
    if (reason === "slot") return running.filter(holdsSlot);
    const key = `${reason} ${laneOf(task)}`; // the same for all tasks of a lane
    if (!this.holdersNow.has(key)) this.holdersNow.set(key, running.filter(this.#holds(task, reason)));
    return this.holdersNow.get(key);
  }

  #holds(task, reason) {
    if (reason === "slot_higher") return (other) => holdsSlot(other) && other.priority > task.priority;
    if (reason !== "scope_slots") return (other) => other.demand[reason] || other.devices[reason];
    const scope = this.laneCauses.get(laneOf(task))?.of ?? task.scope;
    return (other) => holdsSlot(other) && this.#inScope(other.scope, scope);
  }

  #inScope(key, wanted) {
    for (let at = key, steps = 0; at && steps < 1000; at = this.scopes.get(at)?.parent, steps += 1) if (at === wanted) return true;
    return false;
  }

  /** Whether a task that waits for this can be told which tasks hold it up: every runner has a slot, that tells nothing. */
  tellsWho(reason) {
    return reason !== null && reason !== "slot" && reason !== "slot_higher";
  }

  /** Whether tasks that wait for this wait for what others hold; otherwise for the end of others. */
  isHeld(reason) {
    return reason !== "dependency" && reason !== "overlap";
  }

  /** Active tasks, in start order. */
  running() {
    if (this.runningAt !== this.version) {
      this.runningAt = this.version;
      this.holdersNow = new Map();
      this.runningNow = [];
      for (const task of this.tasks.values()) if (!task.outcome && isActive(task)) this.runningNow.push(task);
      this.runningNow.sort((a, b) => a.started_ns - b.started_ns);
    }
    return this.runningNow;
  }

  /** The story of a task as far as this page has seen it: its events and those of its earlier attempts. */
  story(task) {
    const numbers = new Set();
    for (let each = task; each; each = each.of ? this.tasks.get(each.of) : null) numbers.add(each.number);
    return this.events.filter((event) => numbers.has(event.number));
  }
}

/** Whether a task has started and its body has not ended. */
export const isActive = (task) =>
  task.state === "RUNNING" || task.state === "DISPOSING" || (task.state === "PAUSED" && task.paused_from === "RUNNING");

function over(outcome) {
  return (task, event, details) => {
    task.state = "DISPOSED";
    task.ended_ns = event.time_ns;
    task.held_by = null;
    task.outcome = details.outcome?.toLowerCase() ?? outcome; // files of version 0.1 have upper case
    task.cause = details.cause ?? null;
    task.root = details.root ?? null;
    if (details.waits) task.waits = details.waits;
    task.starved_ns = details.starved_ns ?? task.starved_ns;
    for (const fact of FACTS) task[fact] = details[fact] ?? task[fact];
  };
}

/** What the end of a task may tell of how it ended and what it used. */
const FACTS = ["exit_code", "exit_signal", "peak_ram", "cpu_ms", "measured"];

function taken(task, event, details) {
  task.priority = details.priority ?? task.priority;
  task.demand = details.demand ?? task.demand;
  task.slot = details.slot ?? task.slot;
  task.function = details.function ?? task.function;
  task.after = details.after ?? task.after;
  task.after_ended = details.after_ended ?? task.after_ended;
  task.attempt = details.attempt ?? task.attempt;
  if (task.state === "READY") Object.assign(task, { ready_ns: event.time_ns, ready_seq: event.seq });
  else if (event.kind === "TASK_RETRIED") task.held_by = "backoff";
  else task.held_by = task.after.length || task.after_ended.length ? "dependency" : "overlap";
}

const STEPS = {
  TASK_SUBMITTED: taken,
  TASK_RETRIED: taken,
  TASK_READY: (task, event) => Object.assign(task, { state: "READY", ready_ns: event.time_ns, ready_seq: event.seq, held_by: null }),
  TASK_STARTED: (task, event, details) =>
    Object.assign(task, { state: "RUNNING", started_ns: event.time_ns, held_by: null, starved_ns: details.starved_ns ?? 0, waits: details.waits ?? {}, devices: details.devices ?? {} }),
  TASK_PAUSED: (task, event, details) => {
    task.state = "PAUSED";
    task.paused_from = details.from ?? null;
    if (task.paused_from === "QUEUED") task.queued_for = task.held_by;
    if (task.paused_from !== "RUNNING") task.held_by = "paused";
  },
  TASK_RESUMED: (task, event, details) => {
    task.state = details.to ?? "READY";
    task.paused_from = null;
    task.held_by = task.state === "QUEUED" ? (task.queued_for ?? "dependency") : null;
    if (task.state === "READY") Object.assign(task, { ready_ns: event.time_ns, ready_seq: event.seq });
  },
  TASK_ABORT_ASKED: (task, event, details) => Object.assign(task, { state: "DISPOSING", cause: details.cause ?? null }),
  TASK_STARVED: (task, event, details) => Object.assign(task, { starved_ns: details.starved_ns ?? 0 }),
  TASK_MEASURED: (task, event, details) => Object.assign(task, { ram: details.ram ?? null }),
  TASK_BLOCKED: (task, event, details) => Object.assign(task, { lends: details.lends ?? false }),
  TASK_REGAINED: (task) => Object.assign(task, { lends: false }),
  TASK_OVERDRAWN: (task) => Object.assign(task, { overdrawn: true }),
  TASK_PLACED: (task, event, details) => Object.assign(task, { place: details }),
  TASK_FINISHED: over("success"),
  TASK_CANCELLED: over("aborted"),
  TASK_DROPPED: over("rejected"),
};
