// Timeline: a swimlane for each slot, what the next task of the slot waited for under it, and on top how many waited
// for what. Drawn on a canvas, only what is in view, so that ten thousand tasks move smoothly.

import { h } from "./dom.js";
import { count, demand, placeName, reasonName, reasonVar, stateName, stateVar, time } from "./format.js";
import { empty } from "./parts.js";
import { waitParts } from "./waits.js";

const AXIS = 22;
const WAITING = 84;
const GAP = 10;
const LABELS = 34;
const ROWS = 256;
const MIN_SPAN = 1e4; // ns

const view = { from: null, to: null, follow: true, hover: null };
let drawing = null; // what is on the canvas now

export function render({ store }) {
  if (![...store.tasks.values()].some((task) => task.started_ns !== null)) {
    return [empty("Nothing has run yet", "Each task that starts gets a bar in the lane of its slot.")];
  }
  const causes = new Set();
  for (const task of store.tasks.values()) {
    for (const cause of Object.keys(task.waits)) causes.add(cause);
    const reason = store.reason(task);
    if (reason) causes.add(reason);
  }
  return [
    h("div", { class: "tools", "data-key": "tools" },
      [["in", "+", "zoom in"], ["out", "−", "zoom out"], ["fit", "all", "show the whole run"], ["follow", "follow", "keep the present in view"]].map(([verb, text, title]) =>
        h("button", { type: "button", "data-zoom": verb, title, "aria-pressed": verb === "follow" ? String(view.follow) : null }, text)),
      h("span", { class: "legend" }, [...causes].sort().map((cause) =>
        h("span", { class: "key", "data-key": cause }, h("span", { class: "dot", style: { "--chip": `var(${reasonVar(cause)})` } }), reasonName(cause)))),
      h("span", { class: "quiet grow" }, "drag to pan, wheel to zoom, click a bar")),
    h("div", { class: "timeline", "data-key": "timeline", "data-keep": "" },
      h("canvas", { tabindex: 0, role: "img", "aria-label": "Timeline of tasks by slot" }),
      h("div", { class: "tip", hidden: true })),
  ];
}

/** Called after each render with the view's root. */
export function after(root, context) {
  const box = root.querySelector(".timeline");
  if (!box) return;
  const canvas = box.querySelector("canvas");
  if (!canvas.dataset.ready) {
    canvas.dataset.ready = "yes";
    listen(canvas, box);
  }
  drawing = { ...prepare(context), context, canvas, box };
  draw();
}

/** Zoom by the buttons of the toolbar. */
export function zoom(verb) {
  if (!drawing) return;
  if (verb === "follow") view.follow = !view.follow;
  else if (verb === "fit") Object.assign(view, { from: null, to: null, follow: true });
  else zoomAt(verb === "in" ? 0.6 : 1 / 0.6, 0.5);
  draw();
}

function prepare({ store, now }) {
  const tasks = [];
  for (const task of store.tasks.values()) if (task.started_ns !== null && task.started_ns <= now) tasks.push(task);
  tasks.sort((a, b) => a.started_ns - b.started_ns || a.number - b.number);
  const slots = [];
  const free = []; // sorted: the lowest first
  const busy = []; // heap by end
  for (const task of tasks) {
    while (busy.length && busy[0][0] <= task.started_ns) insert(free, pop(busy)[1]);
    const slot = free.length ? free.shift() : slots.push([]) - 1;
    slots[slot].push(task);
    push(busy, [task.ended_ns ?? Infinity, slot]);
  }
  return { slots, tasks };
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

function range() {
  const { store, now } = drawing.context;
  const first = store.firstNs ?? now;
  const all = Math.max(now - first, 1e6);
  if (view.from === null) return [first - all * 0.01, now + all * 0.02];
  if (view.follow && view.to < now) {
    const span = view.to - view.from;
    view.to = now + span * 0.02;
    view.from = view.to - span;
  }
  return [view.from, view.to];
}

function draw() {
  const { canvas, box, context, slots } = drawing;
  const { store, now, selected } = context;
  const width = box.clientWidth;
  if (!width) return;
  const rows = Math.min(slots.length, ROWS);
  const rowHeight = rows <= 8 ? 40 : rows <= 16 ? 30 : rows <= 40 ? 20 : 11;
  const height = AXIS + WAITING + GAP + rows * rowHeight + 6;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const styles = getComputedStyle(document.documentElement);
  const cache = new Map();
  const colour = (name) => {
    if (!cache.has(name)) cache.set(name, styles.getPropertyValue(name).trim());
    return cache.get(name);
  };
  const [from, to] = range();
  const scale = (width - LABELS) / (to - from);
  const x = (ns) => LABELS + (ns - from) * scale;
  Object.assign(drawing, { from, to, scale, rowHeight, top: AXIS + WAITING + GAP, width });
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  axis(pen, colour, from, to, x, width, height, store.firstNs ?? from);
  waitingChart(pen, colour, drawing, now, x);
  for (let slot = 0; slot < rows; slot += 1) lane(pen, colour, slot, x, width, now, store, selected);
  if (now >= from && now <= to) {
    pen.fillStyle = colour("--accent");
    pen.fillRect(x(now), AXIS, 1, height - AXIS);
  }
  canvas.setAttribute("aria-label", `Timeline: ${count(drawing.tasks.length)} tasks in ${slots.length} slots over ${time(to - from)}`);
  canvas.dataset.drawn = String(drawing.tasks.length);
}

function axis(pen, colour, from, to, x, width, height, origin) {
  const rough = (to - from) / Math.max(2, width / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  pen.strokeStyle = colour("--line");
  pen.fillStyle = colour("--quiet");
  pen.lineWidth = 1;
  for (let at = Math.ceil((from - origin) / step) * step; at <= to - origin; at += step) {
    const place = Math.round(x(origin + at)) + 0.5;
    if (place < LABELS) continue;
    pen.beginPath();
    pen.moveTo(place, AXIS - 4);
    pen.lineTo(place, height);
    pen.stroke();
    pen.fillText(at <= 0 ? "0" : time(at), place + 3, AXIS / 2);
  }
}

function waitingChart(pen, colour, { tasks, context, width }, now, x) {
  const { store } = context;
  const columns = Math.max(1, Math.ceil((width - LABELS) / 2));
  const causes = new Map();
  const add = (task) => {
    for (const [start, end, cause] of waitParts(task, store.reason(task), now)) {
      const first = Math.max(0, Math.floor((x(start) - LABELS) / 2));
      const last = Math.min(columns, Math.ceil((x(Math.min(end, now)) - LABELS) / 2));
      if (last <= 0 || first >= columns || last <= first) continue;
      let line = causes.get(cause);
      if (!line) causes.set(cause, (line = new Float64Array(columns + 1)));
      line[first] += 1;
      line[last] -= 1;
    }
  };
  for (const task of tasks) add(task);
  for (const task of store.tasks.values()) if (task.started_ns === null && task.submitted_ns <= now) add(task);
  const below = new Float64Array(columns);
  const lines = [...causes].sort((a, b) => (a[0] < b[0] ? -1 : 1));
  let highest = 0;
  for (const [, line] of lines) {
    let value = 0;
    for (let column = 0; column < columns; column += 1) {
      value += line[column];
      line[column] = value;
      below[column] += value;
      highest = Math.max(highest, below[column]);
    }
  }
  const top = AXIS + 4;
  const floor = AXIS + WAITING;
  pen.fillStyle = colour("--quiet");
  pen.save();
  pen.translate(10, floor - WAITING / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText("waiting", 0, 0);
  pen.restore();
  if (!highest) return;
  pen.textAlign = "right";
  pen.fillText(count(highest), LABELS - 4, top + 6);
  pen.textAlign = "left";
  below.fill(0);
  for (const [cause, line] of lines) {
    pen.fillStyle = colour(reasonVar(cause));
    for (let column = 0; column < columns; column += 1) {
      if (!line[column]) continue;
      const tall = (line[column] / highest) * (floor - top);
      const y = floor - (below[column] / highest) * (floor - top) - tall;
      pen.fillRect(LABELS + column * 2, y, 2, Math.max(tall, 0.5));
      below[column] += line[column];
    }
  }
  pen.fillStyle = colour("--line");
  pen.fillRect(LABELS, floor, width - LABELS, 1);
}

function lane(pen, colour, slot, x, width, now, store, selected) {
  const { slots, rowHeight, top, from, to } = drawing;
  const tasks = slots[slot];
  const y = top + slot * rowHeight;
  const strip = rowHeight >= 30 ? 6 : rowHeight >= 20 ? 4 : 2;
  const tall = rowHeight - strip - (rowHeight >= 20 ? 6 : 3);
  pen.fillStyle = colour("--quiet");
  if (rowHeight >= 20 || slot % 4 === 0) pen.fillText(String(slot + 1), 6, y + tall / 2 + 1);
  pen.fillStyle = colour("--lane");
  pen.fillRect(LABELS, y, width - LABELS, tall);
  let at = firstVisible(tasks, from);
  let drawnTo = -1;
  let before = at > 0 ? tasks[at - 1].started_ns : -Infinity;
  for (; at < tasks.length && tasks[at].started_ns <= to; at += 1) {
    const task = tasks[at];
    const left = Math.max(LABELS, x(task.started_ns));
    const right = Math.min(width, x(Math.min(task.ended_ns ?? now, now)));
    for (const [start, end, cause] of waitParts(task, null, now)) {
      const a = Math.max(LABELS, x(Math.max(start, before)));
      const b = Math.min(width, x(end));
      if (b - a < 0.5) continue;
      pen.fillStyle = colour(reasonVar(cause));
      pen.fillRect(a, y + tall + 1, b - a, strip);
    }
    before = task.started_ns;
    if (right < drawnTo + 0.5 && task.number !== selected) continue;
    pen.fillStyle = colour(stateVar(task));
    const wide = Math.max(right - left, 1);
    pen.fillRect(left, y, wide > 3 ? wide - 1 : wide, tall);
    drawnTo = right;
    if (wide > 30 && tall >= 12) label(pen, colour, task.id, left, y, wide, tall);
    if (task.number === selected || task === view.hover) {
      pen.strokeStyle = colour("--text");
      pen.lineWidth = 2;
      pen.strokeRect(left, y, Math.max(wide - 1, 2), tall);
      pen.lineWidth = 1;
    }
  }
}

function label(pen, colour, text, left, y, wide, tall) {
  pen.save();
  pen.beginPath();
  pen.rect(left, y, wide - 4, tall);
  pen.clip();
  pen.fillStyle = colour("--on-bar");
  pen.fillText(text.length > 60 ? `${text.slice(0, 60)}…` : text, left + 5, y + tall / 2 + 0.5);
  pen.restore();
}

function firstVisible(tasks, from) {
  let low = 0;
  let high = tasks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((tasks[middle].ended_ns ?? Infinity) < from) low = middle + 1;
    else high = middle;
  }
  return low;
}

function listen(canvas, box) {
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, moved: false, from: drawing.from, to: drawing.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged) {
      const by = (dragged.x - event.clientX) / drawing.scale;
      if (Math.abs(event.clientX - dragged.x) > 3) dragged.moved = true;
      if (dragged.moved) Object.assign(view, { from: dragged.from + by, to: dragged.to + by, follow: false });
    } else view.hover = taskAt(event);
    tip(box, event);
    requestDraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const hit = dragged && !dragged.moved ? taskAt(event) : null;
    dragged = null;
    if (hit) canvas.dispatchEvent(new CustomEvent("choose", { bubbles: true, detail: hit.number }));
  });
  canvas.addEventListener("pointerleave", () => {
    view.hover = null;
    box.querySelector(".tip").hidden = true;
    requestDraw();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 600);
    else zoomAt(Math.exp(event.deltaY / 400), (event.offsetX - LABELS) / (drawing.width - LABELS));
    requestDraw();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const acts = { ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoomAt(0.6, 0.5), "=": () => zoomAt(0.6, 0.5), "-": () => zoomAt(1 / 0.6, 0.5), 0: () => zoom("fit") };
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
    requestDraw();
  });
  new ResizeObserver(requestDraw).observe(box);
}

let asked = false;
function requestDraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (drawing?.canvas.isConnected) draw();
  });
}

function pan(share) {
  const by = (drawing.to - drawing.from) * share;
  Object.assign(view, { from: drawing.from + by, to: drawing.to + by, follow: false });
}

function zoomAt(factor, share) {
  const span = drawing.to - drawing.from;
  const wanted = Math.max(MIN_SPAN, span * factor);
  const fixed = view.follow && factor < 1 ? drawing.to : drawing.from + span * share;
  const part = (fixed - drawing.from) / span;
  view.from = fixed - wanted * part;
  view.to = view.from + wanted;
}

function taskAt(event) {
  const { rowHeight, top, slots, from, scale } = drawing;
  const slot = Math.floor((event.offsetY - top) / rowHeight);
  if (slot < 0 || slot >= Math.min(slots.length, ROWS)) return null;
  const ns = from + (event.offsetX - LABELS) / scale;
  const slack = 2 / scale;
  const { now } = drawing.context;
  const tasks = slots[slot];
  for (let at = firstVisible(tasks, ns - slack); at < tasks.length && tasks[at].started_ns <= ns + slack; at += 1) {
    if ((tasks[at].ended_ns ?? now) >= ns - slack) return tasks[at];
  }
  return null;
}

function tip(box, event) {
  const bubble = box.querySelector(".tip");
  const task = view.hover;
  bubble.hidden = !task;
  if (!task) return;
  const { now } = drawing.context;
  const waits = Object.entries(task.waits).map(([cause, ns]) => `${time(ns)} ${reasonName(cause)}`).join(", ");
  const needs = demand(task.demand);
  bubble.replaceChildren(
    h("strong", null, task.id), h("div", null, `${stateName(task)}, ran ${time((task.ended_ns ?? now) - task.started_ns)}${needs ? `, ${needs}` : ""}`),
    h("div", { class: "quiet" }, waits ? `waited ${waits}` : "did not wait"),
    task.place ? h("div", { class: "quiet" }, `on ${placeName(task.place)}, process ${task.place.pid}`) : null);
  bubble.style.left = `${Math.min(event.offsetX + 14, box.clientWidth - 230)}px`;
  bubble.style.top = `${event.offsetY + 14}px`;
}
