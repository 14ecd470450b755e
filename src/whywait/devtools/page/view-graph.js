// Graph: which task waits for which to succeed. Large families of tasks ("frame-1", "frame-2", ...) are folded into one box.

import { h, s } from "./dom.js";
import { count, counted, labelOf, stateName, stateVar } from "./format.js";
import { empty, heading, stateLegend } from "./parts.js";

const FOLD_ABOVE = 60;
const FAMILY = 3;
const MOST = 400;
const BOX = { w: 168, h: 34, x: 64, y: 12 };

const opened = new Set(); // families that the reader has unfolded

/** Unfold or fold a family; "*" folds all. */
export function toggle(family) {
  if (family === "*") opened.clear();
  else if (!opened.delete(family)) opened.add(family);
}

export function render({ store, selected }) {
  const tasks = [];
  for (const task of store.tasks.values()) {
    if (task.retried_as === null && (task.after.length || task.after_ended.length || store.successors.has(task.number) || hadSuccessors(store, task))) tasks.push(task);
  }
  if (!tasks.length) return [empty("No dependencies", "Tasks submitted with after=[...], or with a handle as argument, form a graph here.")];
  const { nodes, edges } = fold(store, tasks);
  const shown = [...nodes.values()].slice(0, MOST);
  place(shown, edges);
  const chosen = selected === null ? null : shown.find((node) => node.tasks.some((task) => task.number === selected));
  const near = chosen ? neighbours(chosen, edges) : null;
  const width = Math.max(...shown.map((node) => node.x)) + BOX.w + 20;
  const height = Math.max(...shown.map((node) => node.y)) + BOX.h + 20;
  return [h("section", null,
    heading("Graph", counted(tasks.length, "task"), h("span", { class: "hint" }, near
      ? `${count(near.up.size)} upstream, ${count(near.down.size)} downstream of ${chosen.label}` : "choose a task to see what it needs and what needs it"),
    stateLegend(tasks), opened.size ? h("button", { type: "button", "data-fold": "*" }, "fold all") : null),
    h("div", { class: "graph" },
      s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Dependency graph" },
        s("g", { class: "edges" }, edges.filter(([a, b]) => a.placed && b.placed).map(([a, b, kind]) => edge(a, b, kind, near, chosen))),
        shown.map((node) => box(node, near, chosen)))),
    nodes.size > MOST ? h("p", { class: "quiet" }, `and ${count(nodes.size - MOST)} more`) : null)];
}

function hadSuccessors(store, task) {
  for (let each = task; each?.of; ) {
    each = store.tasks.get(each.of);
    if (each && store.successors.has(each.number)) return true;
  }
  return false;
}

/** What a task is folded with: its id without the numbers at the end. A number before them is part of the name. */
export const familyOf = (task) => `${task.scope}/${labelOf(task).replace(/(?:[-_.#: ]+\d{1,20}(?:[-_.#: x]\d{1,20}){0,3}|\d{1,20})$/, "")}`;

/** Tasks and what they wait for as boxes and edges; edges within a folded family are counted. */
export function fold(store, tasks) {
  const sizes = new Map();
  for (const task of tasks) sizes.set(familyOf(task), (sizes.get(familyOf(task)) ?? 0) + 1);
  const nodes = new Map();
  const nodeOf = new Map();
  for (const task of tasks) {
    const family = familyOf(task);
    const folded = tasks.length > FOLD_ABOVE && sizes.get(family) >= FAMILY && !opened.has(family);
    const key = folded ? `family ${family}` : `task ${task.number}`;
    const node = nodes.get(key) ?? { key, family: folded ? family : null, tasks: [], inner: 0, label: folded ? `${family.slice(task.scope.length + 1)}…` : labelOf(task) };
    node.tasks.push(task);
    nodes.set(key, node);
    nodeOf.set(task.number, node);
  }
  const edges = new Map();
  for (const task of tasks) {
    for (const [kind, list] of [["after", task.after], ["ended", task.after_ended]]) {
      for (const number of list) {
        const from = nodeOf.get(store.latest(number)?.number);
        const to = nodeOf.get(task.number);
        if (from === to) to.inner += 1;
        else if (from) edges.set(`${from.key}>${to.key}`, [from, to, kind]);
      }
    }
  }
  return { nodes, edges: [...edges.values()] };
}

/** Columns by longest path, rows by the middle of the neighbours. */
function place(nodes, edges) {
  const inward = new Map(nodes.map((node) => [node, []]));
  const outward = new Map(nodes.map((node) => [node, []]));
  for (const [a, b] of edges) {
    if (!inward.has(a) || !inward.has(b)) continue;
    inward.get(b).push(a);
    outward.get(a).push(b);
  }
  const left = new Map(nodes.map((node) => [node, inward.get(node).length]));
  const queue = nodes.filter((node) => !left.get(node));
  for (const node of nodes) node.layer = 0;
  const done = new Set(queue);
  for (let at = 0; at < nodes.length; at += 1) {
    if (at === queue.length) { // families may wait for each other in a circle: go on with any of them
      const next = nodes.find((node) => !done.has(node));
      done.add(next);
      queue.push(next);
    }
    for (const next of outward.get(queue[at])) {
      if (done.has(next)) continue;
      next.layer = Math.max(next.layer, queue[at].layer + 1);
      left.set(next, left.get(next) - 1);
      if (!left.get(next)) {
        done.add(next);
        queue.push(next);
      }
    }
  }
  const layers = [];
  for (const node of nodes) (layers[node.layer] ??= []).push(node);
  for (let layer = 0; layer < layers.length; layer += 1) (layers[layer] ??= []).forEach((node, row) => (node.row = row));
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const ordered = sweep % 2 ? [...layers].reverse() : layers;
    for (const layer of ordered) {
      for (const node of layer) {
        const others = (sweep % 2 ? outward : inward).get(node);
        node.wish = others.length ? others.reduce((sum, other) => sum + other.row, 0) / others.length : node.row;
      }
      layer.sort((a, b) => a.wish - b.wish).forEach((node, row) => (node.row = row));
    }
  }
  const tallest = Math.max(...layers.map((layer) => layer.length));
  for (const layer of layers) {
    const shift = ((tallest - layer.length) * (BOX.h + BOX.y)) / 2;
    for (const node of layer) {
      node.x = 10 + node.layer * (BOX.w + BOX.x);
      node.y = 10 + shift + node.row * (BOX.h + BOX.y);
      node.placed = true;
    }
  }
}

function neighbours(chosen, edges) {
  const reach = (from, to) => {
    const found = new Set();
    const stack = [chosen];
    while (stack.length) {
      const node = stack.pop();
      for (const one of edges) if (one[from] === node && !found.has(one[to])) {
        found.add(one[to]);
        stack.push(one[to]);
      }
    }
    found.delete(chosen);
    return found;
  };
  return { up: reach(1, 0), down: reach(0, 1) };
}

function edge(a, b, kind, near, chosen) {
  const [x1, y1, x2, y2] = [a.x + BOX.w, a.y + BOX.h / 2, b.x, b.y + BOX.h / 2];
  const bend = Math.max(30, (x2 - x1) / 2);
  const inside = near && (a === chosen || near.up.has(a) || near.down.has(a)) && (b === chosen || near.up.has(b) || near.down.has(b));
  const side = inside ? (near.up.has(a) ? "up" : "down") : near ? "dim" : "";
  return s("path", { class: `${kind} ${side}`, d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` });
}

function box(node, near, chosen) {
  const side = !near ? "" : node === chosen ? "chosen" : near.up.has(node) ? "up" : near.down.has(node) ? "down" : "dim";
  const one = node.tasks.length === 1 && !node.family ? node.tasks[0] : null;
  const parts = new Map();
  for (const task of node.tasks) parts.set(stateVar(task), (parts.get(stateVar(task)) ?? 0) + 1);
  let at = 0;
  const bars = [...parts].map(([colour, value]) => {
    const wide = (BOX.w * value) / node.tasks.length;
    at += wide;
    return s("rect", { x: at - wide, y: BOX.h - 5, width: wide, height: 5, style: { fill: `var(${colour})` } });
  });
  const inner = node.inner ? `, which wait for each other ${counted(node.inner, "time")}` : "";
  const text = one ? `${labelOf(one)}: ${stateName(one)}` : `${node.label} ${counted(node.tasks.length, "task")}${inner}, press to unfold`;
  return s("g", {
    class: `node item ${side}`, transform: `translate(${node.x},${node.y})`, tabindex: 0, role: "button", "aria-label": text,
    "data-key": node.key, "data-task": one ? one.number : null, "data-fold": one ? null : node.family,
  },
    s("title", null, text), s("rect", { class: "box", width: BOX.w, height: BOX.h, rx: 6 }),
    s("text", { x: 10, y: 18 }, clip(node.label, one ? 22 : 17)), one ? null : s("text", { x: BOX.w - 8, y: 18, class: "members" }, `${node.inner ? "↻ " : ""}×${count(node.tasks.length)}`),
    bars);
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
