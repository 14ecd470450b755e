// Failures and drops: how each ended, the root cause, what it took down, and whether it was tried again.

import { h } from "./dom.js";
import { count, labelOf, time } from "./format.js";
import { empty, heading, priorityBadge, statePill } from "./parts.js";

const SHOWN = 300;

const TEXTS = {
  exception: "the function raised an error",
  exit_code: "the command ended with an exit code other than 0",
  worker_lost: "its worker was lost",
  out_of_memory: "it used more memory than it had asked for, or than there was",
  handler: "one of its handlers failed",
  worker: "one of its workers failed",
  run_timeout: "it ran longer than its timeout",
  cancelled: "somebody cancelled it",
  scope_disposed: "its scope was disposed of",
  pause_timeout: "it reached no checkpoint after a pause was asked for",
  loop_closed: "the event loop that it belongs to has ended",
  max_wait: "it waited longer than max_wait",
  displaced: "a task of higher priority took its place in the queue",
  periodic_off: "its periodic was switched off",
  queue_full: "the queue was full",
  busy: "all slots were taken",
  spawn_limit: "the scope has reached max_spawn",
  infeasible: "it demands more than there is",
  duplicate: "its id was taken",
  unknown_dependency: "a dependency does not exist",
  scope_state: "the scope does not accept tasks",
  failures: "it failed too often in a row",
  "SRS-E-RUN-002": "the previous iteration was still there",
  "SRS-E-RUN-003": "an iteration was waiting already",
};

export function render({ store, now, selected }) {
  const roots = [];
  const taken = new Map(); // "scope/root id" -> tasks that went down with it
  for (const task of store.tasks.values()) {
    if (!task.outcome || task.outcome === "success" || failedAgain(store, task)) continue;
    if (task.cause === "dependency" && task.root !== null) taken.set(task.root, [...(taken.get(task.root) ?? []), task]);
    else roots.push(task);
  }
  const known = new Set(roots.map(labelOf));
  for (const [root, tasks] of taken) if (!known.has(root)) roots.push(...tasks);
  if (!roots.length && !store.notes.length) return [empty("No failures, no drops", "Whatever goes wrong shows up here with its root cause.")];
  roots.sort((a, b) => b.ended_ns - a.ended_ns);
  const section = (key, title, tasks) => {
    if (!tasks.length) return null;
    const fallen = tasks.reduce((sum, task) => sum + (taken.get(labelOf(task))?.length ?? 0), 0);
    return h("section", { "data-key": key }, heading(title, count(tasks.length), fallen ? h("span", { class: "hint" }, `took down ${count(fallen)} that depended on them`) : null),
      h("ul", { class: "rows" }, tasks.slice(0, SHOWN).map((task) => failure(store, task, taken.get(labelOf(task)) ?? [], now, selected))),
      tasks.length > SHOWN ? h("p", { class: "quiet" }, `and ${count(tasks.length - SHOWN)} more`) : null);
  };
  return [
    section("failures", "Failures and drops", roots.filter((task) => task.outcome !== "aborted")),
    section("cancelled", "Cancelled", roots.filter((task) => task.outcome === "aborted")),
    store.notes.length ? h("section", { "data-key": "notes" }, heading("Refused and skipped", count(store.notes.length)),
      h("ul", { class: "rows" }, gathered(store.notes).slice(0, 100).map((row) => note(row, now)))) : null,
  ];
}

/** Equal notes as one, the latest first. */
function gathered(notes) {
  const rows = new Map();
  for (const event of notes) {
    const { cause = "", code = "", reason = "" } = event.details ?? {};
    const key = [event.kind, event.scope, event.name, cause, code, reason].join("|");
    rows.set(key, { key, event, times: (rows.get(key)?.times ?? 0) + 1, cause: cause || code || reason });
  }
  return [...rows.values()].sort((a, b) => b.event.seq - a.event.seq);
}

/** Whether a later attempt has failed too: that one tells the story. */
function failedAgain(store, task) {
  const again = task.retried_as === null ? null : store.tasks.get(task.retried_as);
  return Boolean(again?.outcome && again.outcome !== "success");
}

function failure(store, task, victims, now, selected) {
  const again = task.retried_as !== null ? store.tasks.get(task.retried_as) : null;
  const decision = again ? `tried again as attempt ${again.attempt}: ${(again.outcome ?? again.state).toLowerCase()}`
    : task.outcome === "error" ? (task.attempt > 1 ? `given up after ${task.attempt} attempts` : "not retried") : null;
  return h("li", { "data-key": `f${task.number}` }, h("button", {
    class: "line tall item", type: "button", "data-task": task.number, "aria-pressed": String(task.number === selected),
  },
    h("span", { class: "row" }, statePill(task), h("span", { class: "name" }, labelOf(task)), priorityBadge(task.priority),
      h("span", { class: "quiet" }, task.scope), h("span", { class: "num" }, `${time(now - task.ended_ns)} ago`)),
    h("span", { class: "row sub" }, h("code", null, task.cause ?? "?"),
      h("span", null, task.root ? `because ${task.root} did not succeed` : TEXTS[task.cause] ?? ""),
      decision ? h("span", { class: "quiet" }, decision) : null,
      victims.length ? h("span", { class: "warn" }, `took down ${count(victims.length)}: ${victims.slice(0, 3).map(labelOf).join(", ")}${victims.length > 3 ? " …" : ""}`) : null)));
}

function note({ key, event, times, cause }, now) {
  const what = { TASK_DROPPED: "dropped at submit", TASK_REJECTED: "rejected at submit", PERIODIC_SKIPPED: "tick skipped", PERIODIC_DISABLED: "periodic off" }[event.kind];
  return h("li", { "data-key": key, class: "line note" }, h("span", { class: "state" }, what),
    h("span", { class: "name" }, event.name ?? "(unnamed)"), times > 1 ? h("b", null, `×${count(times)}`) : null,
    h("span", { class: "quiet" }, event.scope), h("code", null, cause),
    h("span", { class: "quiet grow" }, TEXTS[cause] ?? ""), h("span", { class: "num" }, `${time(now - event.time_ns)} ago`));
}
