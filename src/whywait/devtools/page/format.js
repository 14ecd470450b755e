// Numbers as people say them, and the colour and name of each thing a task can wait for.

import { holdsSlot } from "./store.js";

const MS = 1e6;
const S = 1e9;

/** A duration in nanoseconds: 0.4 ms, 850 ms, 12.3 s, 4m 05s, 2h 03m. */
export function time(ns) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "–";
  if (ns < 0) return `−${time(-ns)}`;
  if (ns < 999.5 * MS) {
    const ms = ns / MS;
    return ms < 10 ? `${Number(ms.toPrecision(2))} ms` : `${Math.round(ms)} ms`;
  }
  if (ns < 59.95 * S) return `${(ns / S).toFixed(1)} s`;
  const seconds = Math.round(ns / S);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${two((seconds % 3600) / 60)}m`;
  return `${Math.floor(seconds / 86400)}d ${two((seconds % 86400) / 3600)}h`;
}

/** Bytes in powers of ten. */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  let value = bytes;
  for (const prefix of "kMGTPE") {
    value /= 1000;
    if (value < 999.95) return `${value.toFixed(1)} ${prefix}B`;
  }
  return `${value.toFixed(1)} EB`;
}

/** How much of a resource: ram and vram are bytes, and so is whatever is counted in millions. */
export function amount(name, value, limit = value) {
  return name === "ram" || name === "vram" || limit >= 1e6 ? size(value) : count(value);
}

/** 12,345 */
export const count = (value) => value.toLocaleString("en-GB");

/** How many of something: "1 task", "1,200 tasks". */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** A demand: cpu 2, vram 4.0 GB. */
export const demand = (needs) => Object.entries(needs).map(([name, value]) => `${name} ${amount(name, value)}`).join(", ");

/** The units of devices that a task got: gpu 0, rig a, b. */
export const unitNames = (devices) => Object.entries(devices).map(([kind, names]) => `${kind} ${names.join(", ")}`).join("; ");

/** Where a task runs, if its engine leaves that to a cluster: machine and node. */
export const placeName = (place) => `${place.machine} (${place.node})`;

const PRIORITIES = { 100: "critical", 80: "high", 50: "normal", 20: "low", 0: "background" };

/** 80 high */
export const priorityName = (value) => PRIORITIES[value] ?? "";

const REASONS = {
  slot: "a slot",
  slot_higher: "a slot, held by a higher priority",
  scope_slots: "a slot of its scope",
  scope_state: "its scope to be resumed",
  held_back: "a bigger task ahead",
  dependency: "dependencies",
  backoff: "backoff before a retry",
  overlap: "the previous iteration",
  paused: "somebody to resume it",
};

/** How many tasks run: "3/4", or "3/4+1" with one that has no slot. */
export function runningCount(running, slots) {
  if (!slots) return count(running.length);
  const held = running.filter(holdsSlot).length;
  return `${count(held)}/${count(slots)}${running.length > held ? `+${count(running.length - held)}` : ""}`;
}

/** What a wait cause means: "a slot", "vram". */
export const reasonText = (cause) => REASONS[cause] ?? cause;

const SHORT = {
  slot: "slot", slot_higher: "higher priority", scope_slots: "scope slots", scope_state: "suspended", held_back: "held back",
  dependency: "dependency", backoff: "backoff", overlap: "overlap", paused: "paused",
};

/** The same, short enough for a chip. */
export const reasonName = (cause) => SHORT[cause] ?? cause;

const COLOURS = {
  slot: "--c-slot", slot_higher: "--c-higher", scope_slots: "--c-scope", scope_state: "--c-suspended",
  held_back: "--c-held", dependency: "--c-dependency", backoff: "--c-backoff", overlap: "--c-overlap",
  paused: "--c-paused", cpu: "--c-cpu", ram: "--c-ram", vram: "--c-vram",
};
const NAMED = ["--c-n1", "--c-n2", "--c-n3", "--c-n4"];

/** The CSS variable of a wait cause's colour. */
export function reasonVar(cause) {
  const known = COLOURS[cause];
  if (known) return known;
  let hash = 0;
  for (const letter of cause) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return NAMED[hash % NAMED.length];
}

/** The CSS variable of a task's colour by its state or outcome. */
export function stateVar(task) {
  return {
    success: "--s-success", error: "--s-error", timeout: "--s-timeout", aborted: "--s-aborted", rejected: "--s-rejected",
    unseen: "--s-aborted", RUNNING: "--s-running", DISPOSING: "--s-disposing", PAUSED: "--s-paused", READY: "--s-ready",
    QUEUED: "--s-queued",
  }[task.outcome ?? task.state] ?? "--s-queued";
}

const FAILURES = new Set(["error", "timeout"]);

/** Whether a task has failed, and was not tried again; one that was cancelled or dropped has not. */
export const hasFailed = (task) => FAILURES.has(task.outcome) && task.retried_as === null;

/** ready, running, paused, or the outcome of a finished task. */
export function stateName(task) {
  if (task.outcome) return task.outcome;
  return task.state === "DISPOSING" ? "ending" : task.state.toLowerCase();
}

/** How a task is shown, as `kernel/ids.py` has it: by its id, or as "download@12" if it was given none. */
export const labelOf = ({ id, number, function: name }) => (name ? `${name}@${number}` : id);
