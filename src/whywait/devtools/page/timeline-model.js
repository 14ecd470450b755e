// What the timeline draws, made ready once for many frames: which slot each task had, and who waited for what when.

import { waitParts } from "./waits.js";

/** When a task ended; of one whose end was not seen no more is known than that it had started. */
export const endOf = (task) => task.ended_ns ?? (task.outcome ? task.started_ns : Infinity);

/** Lay a run out: `slots` are lists of tasks in start order, `curves` tell for each cause who waited when. */
export function layOut(store, now) {
  const tasks = [];
  for (const task of store.tasks.values()) if (task.started_ns !== null && task.started_ns <= now) tasks.push(task);
  tasks.sort((a, b) => a.started_ns - b.started_ns || a.number - b.number);
  return { tasks, slots: intoSlots(tasks), curves: waitCurves(store, now) };
}

/** Give each task the lowest slot that was free when it started. */
function intoSlots(tasks) {
  const slots = [];
  const free = []; // sorted: the lowest first
  const busy = []; // heap by end
  for (const task of tasks) {
    while (busy.length && busy[0][0] <= task.started_ns) insert(free, pop(busy)[1]);
    const slot = free.length ? free.shift() : slots.push([]) - 1;
    slots[slot].push(task);
    push(busy, [endOf(task), slot]);
  }
  return slots;
}

function insert(list, value) {
  let at = list.length;
  while (at && list[at - 1] > value) at -= 1;
  list.splice(at, 0, value);
}

function push(heap, item) {
  heap.push(item);
  for (let at = heap.length - 1; at; ) {
    const parent = (at - 1) >> 1;
    if (heap[parent][0] <= heap[at][0]) return;
    [heap[parent], heap[at]] = [heap[at], heap[parent]];
    at = parent;
  }
}

function pop(heap) {
  const first = heap[0];
  const last = heap.pop();
  if (!heap.length) return first;
  heap[0] = last;
  for (let at = 0; ; ) {
    const left = 2 * at + 1;
    if (left >= heap.length) return first;
    const least = left + 1 < heap.length && heap[left + 1][0] < heap[left][0] ? left + 1 : left;
    if (heap[at][0] <= heap[least][0]) return first;
    [heap[least], heap[at]] = [heap[at], heap[least]];
    at = least;
  }
}

/** For each cause when waits began and when they ended, both sorted: so any stretch of time is counted by searching. */
function waitCurves(store, now) {
  const curves = new Map();
  for (const task of store.tasks.values()) {
    if (task.submitted_ns > now) continue;
    for (const [from, to, cause] of waitParts(task, store.reason(task), now)) {
      let curve = curves.get(cause);
      if (!curve) curves.set(cause, (curve = { cause, starts: [], ends: [] }));
      curve.starts.push(from);
      curve.ends.push(to >= now ? Infinity : to);
    }
  }
  return [...curves.values()].sort((a, b) => (a.cause < b.cause ? -1 : 1))
    .map(({ cause, starts, ends }) => ({ cause, starts: Float64Array.from(starts).sort(), ends: Float64Array.from(ends).sort() }));
}

/** How many of a curve's waits touch the time from `from` to `to`. */
export const waitingIn = (curve, from, to) => countBelow(curve.starts, to) - countBelow(curve.ends, from);

function countBelow(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index of the first task of a slot, from `low` on, that had not ended at `ns`. */
export function firstAfter(tasks, ns, low = 0) {
  let high = tasks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endOf(tasks[middle]) < ns) low = middle + 1;
    else high = middle;
  }
  return low;
}
