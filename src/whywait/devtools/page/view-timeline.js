// Timeline: a swimlane for each slot, what the next task of the slot waited for under it, and on top how many waited
// for what. Drawn on a canvas, only what is in view, so that ten thousand tasks move smoothly.

import { h } from "./dom.js";
import { count, counted, demand, labelOf, placeName, reasonName, reasonText, reasonVar, stateName, stateVar, time, unitNames } from "./format.js";
import { empty, legend, stateLegend } from "./parts.js";
import { endOf, firstAfter, layOut, waitingAt } from "./timeline-model.js";
import { waitParts } from "./waits.js";

const AXIS = 22;
const WAITING = 84;
const GAP = 10;
const LABELS = 34;
const ROWS = 256;
const CHOSEN = 34; // the height of the chosen task, below all slots
const MIN_SPAN = 1e4; // ns
const LAYOUT_SHARE = 0.05; // of the time

const view = { from: null, to: null, follow: true, hover: null };
let drawing = null; // what is on the canvas now
let layout = null; // of the run, good for many frames

export function render(context) {
  layout = layoutFor(context);
  if (!layout.tasks.length) return [empty("Nothing has run yet", "Each task that starts gets a bar in the lane of its slot.")];
  return [
    h("div", { class: "tools", "data-key": "tools" },
      [["in", "+", "zoom in"], ["out", "−", "zoom out"], ["fit", "all", "show the whole run"], ["follow", "follow", "keep the present in view"]].map(([verb, text, title]) =>
        h("button", { type: "button", "data-zoom": verb, title, "aria-pressed": verb === "follow" ? String(view.follow) : null }, text)),
      h("span", { class: "quiet grow" }, "drag to pan, wheel to zoom, click a bar")),
    h("div", { class: "tools legends", "data-key": "legends" },
      stateLegend(layout.tasks),
      layout.curves.length ? legend("waits for", layout.curves.map(({ cause }) => [reasonName(cause), reasonVar(cause), `waits for ${reasonText(cause)}`])) : null),
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
  drawing = { context, canvas, box };
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

/** The layout of the run, made anew when there is news; the longer that takes, the less often. */
function layoutFor({ store, now }) {
  const began = performance.now();
  if (layout?.store === store && (layout.version === store.version || began < layout.goodUntil)) return layout;
  const made = { ...layOut(store, now), store, version: store.version };
  return { ...made, goodUntil: began + (performance.now() - began) / LAYOUT_SHARE };
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

/** Draw a frame; bench/frames.py times it. */
export function draw() {
  const { canvas, box, context } = drawing;
  const { slots } = layout;
  const { store, now, selected } = context;
  const width = box.clientWidth;
  if (!width) return;
  const rows = Math.min(slots.length, ROWS);
  const rowHeight = rows <= 8 ? 40 : rows <= 16 ? 30 : rows <= 40 ? 20 : 11;
  const chosen = store.tasks.get(selected);
  const bottom = AXIS + WAITING + GAP + rows * rowHeight + 6;
  const height = bottom + (chosen ? CHOSEN : 0);
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
  waitingChart(pen, colour, now, width, from, scale);
  const looked = [];
  for (let slot = 0; slot < rows; slot += 1) looked.push(lane(pen, colour, slot, x, width, now));
  for (const task of new Set([chosen, view.hover])) if (task) mark(pen, colour, task, x, width, now);
  if (chosen) wholeTask(pen, colour, chosen, bottom, x, width, now, store.reason(chosen));
  if (now >= from && now <= to) {
    pen.fillStyle = colour("--accent");
    pen.fillRect(x(now), AXIS, 1, height - AXIS);
  }
  canvas.setAttribute("aria-label", `Timeline: ${counted(layout.tasks.length, "task")} in ${counted(layout.held, "slot")} over ${time(to - from)}`);
  canvas.dataset.drawn = String(layout.tasks.length);
  canvas.dataset.looked = looked.join(" "); // at so many tasks of each slot: bounded by the width, not by their number
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

/** Draw how many waited for what; of each column the instant at which most did. */
function waitingChart(pen, colour, now, width, from, scale) {
  const { curves, totals } = layout;
  const present = LABELS + (now - from) * scale;
  const columns = Math.max(0, Math.min(Math.ceil((width - LABELS) / 2), Math.ceil((present - LABELS) / 2)));
  const below = new Float64Array(columns);
  const instants = Float64Array.from(below, (_, column) => totals.fullest(from + (column * 2) / scale, from + ((column + 1) * 2) / scale));
  const lines = [];
  let highest = 0;
  for (const curve of curves) {
    const line = new Float64Array(columns);
    for (let column = 0; column < columns; column += 1) {
      line[column] = waitingAt(curve, instants[column]);
      below[column] += line[column];
      highest = Math.max(highest, below[column]);
    }
    lines.push([curve.cause, line]);
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

/** Draw the tasks of a slot; those that fall into the same half pixel are drawn as one. Return how many were looked at. */
function lane(pen, colour, slot, x, width, now) {
  const { rowHeight, top, from, to, scale } = drawing;
  const tasks = layout.slots[slot];
  const { y, tall, strip } = row(slot);
  pen.fillStyle = colour("--quiet");
  if (rowHeight >= 20 || slot % 4 === 0) pen.fillText(slot < layout.held ? String(slot + 1) : "+", 6, y + tall / 2 + 1); // + runs beside, without a slot
  pen.fillStyle = colour("--lane");
  pen.fillRect(LABELS, y, width - LABELS, tall);
  let at = firstAfter(tasks, from);
  let before = at > 0 ? tasks[at - 1].started_ns : -Infinity;
  let looked = 0;
  while (at < tasks.length && tasks[at].started_ns <= to) {
    const task = tasks[at];
    looked += 1;
    const left = Math.max(LABELS, x(task.started_ns));
    const right = Math.min(width, x(Math.min(endOf(task), now)));
    for (const [start, end, cause] of waitParts(task, null, now)) {
      const a = Math.max(LABELS, x(Math.max(start, before)));
      const b = Math.min(width, x(end));
      if (b - a < 0.5) continue;
      pen.fillStyle = colour(reasonVar(cause));
      pen.fillRect(a, y + tall + 1, b - a, strip);
    }
    before = task.started_ns;
    const wide = Math.max(right - left, 1);
    pen.fillStyle = colour(stateVar(task));
    pen.fillRect(left, y, wide > 3 ? wide - 1 : wide, tall);
    if (wide > 30 && tall >= 12) label(pen, colour, labelOf(task), left, y, wide, tall);
    at = firstAfter(tasks, endOf(task) + 0.5 / scale, at + 1);
  }
  return looked;
}

/** Where a slot is drawn: its bars from `y`, so `tall`, and below them the strip of waits. */
function row(slot) {
  const { rowHeight, top } = drawing;
  const strip = rowHeight >= 30 ? 6 : rowHeight >= 20 ? 4 : 2;
  return { y: top + slot * rowHeight, strip, tall: rowHeight - strip - (rowHeight >= 20 ? 6 : 3) };
}

/** Draw a frame around a task, however small it is. */
function mark(pen, colour, task, x, width, now) {
  const slot = layout.slots.findIndex((tasks) => tasks[firstAfter(tasks, endOf(task))] === task);
  const left = Math.max(LABELS, x(task.started_ns));
  const right = Math.min(width, x(Math.min(endOf(task), now)));
  if (slot === -1 || slot >= ROWS || right < LABELS || left > width) return;
  const { y, tall } = row(slot);
  pen.strokeStyle = colour("--text");
  pen.lineWidth = 2;
  pen.strokeRect(left, y, Math.max(right - left - 1, 2), tall);
  pen.lineWidth = 1;
}

/** Draw the chosen task below all slots: its wait by cause, then its run. */
function wholeTask(pen, colour, task, y, x, width, now, reason) {
  const tall = CHOSEN - 12;
  pen.fillStyle = colour("--quiet");
  pen.fillText("→", 6, y + tall / 2 + 1);
  const parts = waitParts(task, reason, now).map(([from, to, cause]) => [from, to, reasonVar(cause), reasonName(cause)]);
  if (task.started_ns !== null) parts.push([task.started_ns, Math.min(endOf(task), now), stateVar(task), labelOf(task)]);
  for (const [from, to, name, text] of parts) {
    const left = Math.max(LABELS, x(from));
    const wide = Math.min(width, x(to)) - left;
    if (wide <= 0) continue;
    pen.fillStyle = colour(name);
    pen.fillRect(left, y, Math.max(wide, 1), tall);
    if (wide > 30) label(pen, colour, text, left, y, wide, tall);
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
  new ResizeObserver(requestDraw).observe(box);
}

const KEYS = { ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom("in"), "=": () => zoom("in"), "-": () => zoom("out"), 0: () => zoom("fit") };

/** Act on a key; return whether it means something here. */
export function press(key) {
  if (!drawing || !KEYS[key]) return false;
  KEYS[key]();
  requestDraw();
  return true;
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
  const { rowHeight, top, from, scale } = drawing;
  const { slots } = layout;
  const slot = Math.floor((event.offsetY - top) / rowHeight);
  if (slot < 0 || slot >= Math.min(slots.length, ROWS)) return null;
  const ns = from + (event.offsetX - LABELS) / scale;
  const slack = 2 / scale;
  const tasks = slots[slot];
  for (let at = firstAfter(tasks, ns - slack); at < tasks.length && tasks[at].started_ns <= ns + slack; at += 1) {
    if (endOf(tasks[at]) >= ns - slack) return tasks[at];
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
    h("strong", null, labelOf(task)), h("div", null, `${stateName(task)}, ran ${time((task.ended_ns ?? now) - task.started_ns)}${needs ? `, ${needs}` : ""}`),
    h("div", { class: "quiet" }, waits ? `waited ${waits}` : "did not wait"),
    Object.keys(task.devices).length ? h("div", { class: "quiet" }, `on ${unitNames(task.devices)}`) : null,
    task.place ? h("div", { class: "quiet" }, `on ${placeName(task.place)}, process ${task.place.pid}`) : null);
  bubble.style.left = `${Math.min(event.offsetX + 14, box.clientWidth - 230)}px`;
  bubble.style.top = `${event.offsetY + 14}px`;
}
