// Budget: how much of each resource and of each unit of a device is in use, by which tasks, and how that went over time;
// and how much memory tasks asked for and used.

import { h, s } from "./dom.js";
import { amount, count, labelOf, size, time } from "./format.js";
import { cell, columnHeads, empty, heading, taskLink } from "./parts.js";
import { holdsSlot } from "./store.js";

const WIDTH = 600;
const HEIGHT = 70;

export function render({ store, now }) {
  const gates = gatesOf(store);
  const memory = memoryTable(memoryUse(store.tasks.values()));
  if (!gates.length) return [empty("No budget", "Neither slots nor resources are limited in this run."), ...memory];
  const running = store.running();
  return [h("section", null, heading("Budget", undefined, h("span", { class: "hint" }, "a hard limit is never passed; a soft one yields while nothing runs")),
    h("div", { class: "gauges" }, gates.map((gate) => gauge(store, gate, running, now)))),
  ...memory];
}

/** What tasks of one name asked for and used, each at most, the largest first; as `report()["memory"]` has it. */
export function memoryUse(tasks) {
  const rows = new Map();
  for (const task of tasks) {
    const { scope, demand, peak_ram } = task;
    if (peak_ram === null) continue;
    const name = sharedName(labelOf(task));
    const asked = demand.ram ?? 0;
    const row = rows.get(`${scope}/${name}`) ?? { id: name, scope, tasks: 0, asked: 0, peak: 0, overdrawn: 0 };
    row.tasks += 1;
    row.asked = Math.max(row.asked, asked);
    row.peak = Math.max(row.peak, peak_ram);
    row.overdrawn += Number(asked > 0 && asked < peak_ram);
    rows.set(`${scope}/${name}`, row);
  }
  return [...rows.values()].sort((a, b) => b.peak - a.peak || a.scope.localeCompare(b.scope) || a.id.localeCompare(b.id));
}

/** The name that tasks share which differ in a number at the end, or behind a colon; as `kernel/ids.py` has it. */
function sharedName(id) {
  if (id.startsWith("@")) return "@*";
  const matrix = id.indexOf(":");
  if (matrix > 0) return `${id.slice(0, matrix)}:*`;
  const start = id.replace(/[0-9]+$/, "");
  return start === id || !start ? id : `${start}*`;
}

const MOST_NAMES = 50;

function memoryTable(rows) {
  if (!rows.length) return [];
  return [h("section", { class: "memory" }, heading("Memory, asked for and used", undefined, h("span", { class: "hint" }, "the most that a task of the name did; whywait run --suggest prints demands that fit")),
    h("div", { class: "wide" }, h("table", null,
      columnHeads(["Task", "Tasks", "Asked", "Peak"], 1, 3),
      h("tbody", null, rows.slice(0, MOST_NAMES).map((row) => h("tr", { "data-key": `${row.scope}/${row.id}` },
        h("td", null, h("span", { class: "name" }, row.id)),
        cell("Tasks", count(row.tasks)),
        cell("Asked", row.asked ? size(row.asked) : "none"),
        cell("Peak", size(row.peak), { class: row.overdrawn ? "num bad" : "num", title: row.overdrawn ? `${count(row.overdrawn)} used more than they had asked for` : null })))))),
    rows.length > MOST_NAMES ? h("p", { class: "quiet" }, `and ${count(rows.length - MOST_NAMES)} more names`) : null)];
}

const MEMORY = { gpu: "vram" }; // by what name a task asks for the memory of a kind of device

/** Slots, resources, and each unit of a device: name, limit, and what a task needs of it. */
function gatesOf(store) {
  const picture = store.snapshot;
  const units = picture ? picture.devices ?? [] : unitsSeen(store);
  const ofDevices = new Set(units.flatMap(({ kind }) => [kind, MEMORY[kind]]));
  const gates = picture ? [{ ...picture.slots, name: "slots" }, ...picture.budget] : [];
  if (!picture) {
    gates.push({ name: "slots", limit: null, soft: false, unknown: true });
    const names = new Set();
    for (const task of store.tasks.values()) for (const name of Object.keys(task.demand)) if (!ofDevices.has(name)) names.add(name);
    gates.push(...[...names].sort().map((name) => ({ name, limit: null, soft: name === "ram" || name === "vram", unknown: true })));
  }
  const shown = gates.filter((gate) => gate.name === "slots" || gate.limit !== null || !picture);
  return [...shown.map((gate) => ({ ...gate, need: (task) => needOf(task, gate.name) })), ...units.map(unitGate)];
}

/** How much of slots or of a resource counts for a task: of memory what it really uses, where that is told. */
export function needOf(task, name) {
  if (name === "slots") return Number(holdsSlot(task));
  return (name === "ram" ? task.ram : null) ?? task.demand[name] ?? 0;
}

/** The units that tasks got, where nothing else tells which there were. */
function unitsSeen(store) {
  const seen = new Map();
  for (const task of store.tasks.values()) {
    for (const [kind, names] of Object.entries(task.devices)) for (const name of names) seen.set(`${kind} ${name}`, { kind, name, size: null, present: true });
  }
  return [...seen.values()].sort((a, b) => a.kind.localeCompare(b.kind) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

/** One card, or another unit: a task on it has the share that it asked for, or all of it. */
function unitGate({ kind, name, size, present }) {
  const limit = size === null ? null : size || 1;
  const need = (task) => (task.devices[kind]?.includes(name) ? task.demand[MEMORY[kind]] ?? limit ?? 1 : 0);
  return { name: `${kind} ${name}`, limit, soft: false, unknown: size === null, tag: present ? kind : "gone", need };
}

function gauge(store, gate, running, now) {
  const holders = running.map((task) => [task, gate.need(task)]).filter(([, need]) => need);
  holders.sort((a, b) => b[1] - a[1]);
  const used = holders.reduce((sum, [, need]) => sum + need, 0);
  const history = usage(store, gate, now);
  const peak = Math.max(...history.map(([, value]) => value), used);
  const limit = gate.limit ?? Math.max(peak, 1);
  const top = Math.max(limit, peak);
  const show = (value) => amount(gate.name, value, limit);
  return h("article", { class: "gauge", "data-key": gate.name },
    h("header", null, h("strong", { class: "name" }, gate.name),
      h("span", { class: "tag" }, gate.limit === null ? (gate.unknown ? "limit not known" : "no limit") : gate.tag ?? (gate.soft ? "soft" : "hard")),
      h("span", { class: "num" }, gate.limit === null ? `${show(used)} in use` : `${show(used)} of ${show(gate.limit)}`)),
    h("div", { class: used > limit ? "meter over" : "meter", role: "meter", "aria-label": gate.name, "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": used },
      holders.slice(0, 40).map(([task, need], index) =>
        h("span", { title: `${labelOf(task)}: ${show(need)}`, class: index % 2 ? "odd" : null, style: { width: `${(100 * need) / top}%` } })),
      gate.limit === null ? null : h("i", { class: gate.soft ? "soft" : "hard", style: { left: `${(100 * limit) / top}%` } })),
    chart(history, gate, limit, top, now),
    h("div", { class: "quiet foot" }, `highest ${show(peak)}`),
    h("ul", { class: "holders" }, holders.slice(0, 8).map(([task, need]) =>
      h("li", { "data-key": task.number }, taskLink(task), h("span", { class: "num" }, show(need)))),
      holders.length > 8 ? h("li", { class: "quiet" }, `and ${count(holders.length - 8)} more`) : null,
      holders.length ? null : h("li", { class: "quiet" }, "no task holds any")));
}

/** How much was in use over time, from the starts and ends of the tasks: [[ns, amount], ...]. */
function usage(store, gate, now) {
  const steps = [];
  for (const task of store.tasks.values()) {
    const need = gate.need(task);
    if (!need || task.started_ns === null) continue;
    steps.push([task.started_ns, need]);
    if (task.ended_ns !== null) steps.push([task.ended_ns, -need]);
  }
  steps.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let value = 0;
  const history = [[store.firstNs ?? now, 0]];
  for (const [at, change] of steps) {
    value += change;
    if (history.at(-1)[0] === at) history.at(-1)[1] = value;
    else history.push([at, value]);
  }
  history.push([now, value]);
  return history;
}

function chart(history, gate, limit, top, now) {
  const from = history[0][0];
  const span = Math.max(now - from, 1);
  const columns = new Array(WIDTH / 2).fill(0);
  for (let index = 0; index + 1 < history.length; index += 1) {
    const [at, value] = history[index];
    const first = Math.floor(((at - from) / span) * columns.length);
    const last = Math.min(columns.length - 1, Math.floor(((history[index + 1][0] - from) / span) * columns.length));
    for (let column = first; column <= last; column += 1) columns[column] = Math.max(columns[column], value);
  }
  const y = (value) => HEIGHT - (value / (top * 1.08)) * HEIGHT;
  const path = columns.map((value, column) => `L${column * 2},${y(value).toFixed(1)} L${column * 2 + 2},${y(value).toFixed(1)}`).join(" ");
  return s("svg", { class: "history", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${gate.name} in use over the last ${time(span)}` },
    s("path", { d: `M0,${HEIGHT} ${path} L${WIDTH},${HEIGHT} Z` }),
    gate.limit === null ? null : s("line", { x1: 0, x2: WIDTH, y1: y(limit), y2: y(limit), class: gate.soft ? "soft" : "hard" }));
}
