// What the timeline draws, made ready once for many frames: which slot each task had, and which tasks waited for what when.

import { waitParts } from "./waits.js";

/** When a task ended; if its end was not seen, no more is known than that it had started. */
export const endOf = (task) => task.ended_ns ?? (task.outcome ? task.started_ns : Infinity);

/** Lay a run out: `slots` are lists of tasks in start order, the first `held` of them slots and the others of tasks that
 * take none; `curves` tell for each cause how many waited when. */
export function layOut(store, now) {
  const tasks = [];
  for (const task of store.tasks.values()) if (task.started_ns !== null && task.started_ns <= now) tasks.push(task);
  tasks.sort((a, b) => a.started_ns - b.started_ns || a.number - b.number);
  const curves = waitCurves(store, now);
  const held = intoSlots(tasks.filter((task) => task.slot !== false));
  const beside = intoSlots(tasks.filter((task) => task.slot === false));
  return { tasks, slots: [...held, ...beside], held: held.length, curves, totals: new Totals(curves) };
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

/** How many of a curve's waits there were at an instant; at the one at which a wait ends there it is no more. */
export const waitingAt = (curve, ns) => countUpTo(curve.starts, ns) - countUpTo(curve.ends, ns);

function countUpTo(sorted, ns) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How many waited in all, at every instant at which that changed; finds the instant of a stretch at which most did. */
export class Totals {
  constructor(curves) {
    const times = new Set();
    for (const { starts, ends } of curves) for (const list of [starts, ends]) for (const ns of list) if (ns !== Infinity) times.add(ns);
    this.times = Float64Array.from(times).sort();
    const size = this.times.length;
    this.counts = new Int32Array(size);
    for (const curve of curves) {
      let begun = 0;
      let over = 0;
      for (let at = 0; at < size; at += 1) {
        while (begun < curve.starts.length && curve.starts[begun] <= this.times[at]) begun += 1;
        while (over < curve.ends.length && curve.ends[over] <= this.times[at]) over += 1;
        this.counts[at] += begun - over;
      }
    }
    this.best = new Int32Array(2 * size); // a tree: of each pair the instant with the higher count
    for (let at = 0; at < size; at += 1) this.best[size + at] = at;
    for (let at = size - 1; at > 0; at -= 1) this.best[at] = this.#higher(this.best[2 * at], this.best[2 * at + 1]);
  }

  #higher(a, b) {
    return this.counts[b] > this.counts[a] ? b : a;
  }

  /** The instant from `from` on and before `to` at which most waited. */
  fullest(from, to) {
    const size = this.times.length;
    const before = countUpTo(this.times, from) - 1; // what held when the stretch began
    let low = Math.max(before, 0) + size;
    let high = size + countBelow(this.times, to);
    let found = -1;
    for (; low < high; low >>= 1, high >>= 1) {
      if (low & 1) found = found === -1 ? this.best[low] : this.#higher(found, this.best[low]);
      if (low & 1) low += 1;
      if (high & 1) found = found === -1 ? this.best[high - 1] : this.#higher(found, this.best[high - 1]);
      if (high & 1) high -= 1;
    }
    return found === -1 ? from : Math.max(from, this.times[found]);
  }
}

function countBelow(sorted, ns) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < ns) low = middle + 1;
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
