// Budget: how much of each resource is in use, by whom, and how that went over time.

import { h, s } from "./dom.js";
import { amount, count, time } from "./format.js";
import { empty, heading, taskLink } from "./parts.js";

const WIDTH = 600;
const HEIGHT = 70;

export function render({ store, now }) {
  const gates = gatesOf(store);
  if (!gates.length) return [empty("No budget", "Neither slots nor resources are limited in this run.")];
  const running = store.running();
  return [h("section", null, heading("Budget", undefined, h("span", { class: "hint" }, "a hard limit is never passed; a soft one yields while nothing runs")),
    h("div", { class: "gauges" }, gates.map((gate) => gauge(store, gate, running, now))))];
}

function gatesOf(store) {
  const picture = store.snapshot;
  const gates = picture ? [{ ...picture.slots, name: "slots" }, ...picture.budget] : [];
  if (!picture) {
    gates.push({ name: "slots", limit: null, soft: false, unknown: true });
    const names = new Set();
    for (const task of store.tasks.values()) for (const name of Object.keys(task.demand)) names.add(name);
    gates.push(...[...names].sort().map((name) => ({ name, limit: null, soft: name === "ram" || name === "vram", unknown: true })));
  }
  return gates.filter((gate) => gate.name === "slots" || gate.limit !== null || !picture);
}

const needOf = (task, name) => (name === "slots" ? 1 : task.demand[name] ?? 0);

function gauge(store, gate, running, now) {
  const holders = running.map((task) => [task, needOf(task, gate.name)]).filter(([, need]) => need);
  holders.sort((a, b) => b[1] - a[1]);
  const used = holders.reduce((sum, [, need]) => sum + need, 0);
  const history = usage(store, gate.name, now);
  const peak = Math.max(...history.map(([, value]) => value), used);
  const limit = gate.limit ?? Math.max(peak, 1);
  const top = Math.max(limit, peak);
  const show = (value) => amount(gate.name, value, limit);
  return h("article", { class: "gauge", "data-key": gate.name },
    h("header", null, h("strong", { class: "name" }, gate.name),
      h("span", { class: "tag" }, gate.limit === null ? (gate.unknown ? "limit not known" : "no limit") : gate.soft ? "soft" : "hard"),
      h("span", { class: "num" }, gate.limit === null ? `${show(used)} in use` : `${show(used)} of ${show(gate.limit)}`)),
    h("div", { class: used > limit ? "meter over" : "meter", role: "meter", "aria-label": gate.name, "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": used },
      holders.slice(0, 40).map(([task, need], index) =>
        h("span", { title: `${task.id}: ${show(need)}`, class: index % 2 ? "odd" : null, style: { width: `${(100 * need) / top}%` } })),
      gate.limit === null ? null : h("i", { class: gate.soft ? "soft" : "hard", style: { left: `${(100 * limit) / top}%` } })),
    chart(history, gate, limit, top, now),
    h("div", { class: "quiet foot" }, `highest ${show(peak)}`),
    h("ul", { class: "holders" }, holders.slice(0, 8).map(([task, need]) =>
      h("li", { "data-key": task.number }, taskLink(task), h("span", { class: "num" }, show(need)))),
      holders.length > 8 ? h("li", { class: "quiet" }, `and ${count(holders.length - 8)} more`) : null,
      holders.length ? null : h("li", { class: "quiet" }, "nobody holds any")));
}

/** How much was in use over time, from the starts and ends of the tasks: [[ns, amount], ...]. */
function usage(store, name, now) {
  const steps = [];
  for (const task of store.tasks.values()) {
    const need = needOf(task, name);
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
