// Lanes: what runs, what waits, why, and for which tasks, at one glance.

import { h } from "./dom.js";
import { count, demand, labelOf, placeName, reasonText, reasonVar, runningCount, time, unitNames } from "./format.js";
import { empty, heading, names, priorityBadge, reasonChip, stack, statePill, waitDivision } from "./parts.js";
import { isActive, laneKey, laneOf } from "./store.js";

const SHOWN_LANES = 60;
const SHOWN_IN_LANE = 10; // as many as the snapshot tells the effective priority of
const SHOWN_NOT_READY = 60;
const SHOWN_RUNNING = 48;
const SHOWN_LONGEST = 15;

export function render({ store, now, selected }) {
  const waiting = [];
  for (const task of store.tasks.values()) if (!task.outcome && !isActive(task)) waiting.push(task);
  const running = store.running();
  if (!running.length && !waiting.length) {
    return store.tasks.size ? lookBack(store, selected) : [empty("No tasks yet", "As soon as one is submitted it shows up here.")];
  }
  const reasons = new Map(waiting.map((task) => [task, store.reason(task)]));
  return [
    runningSection(store, running, reasons, now, selected),
    waitingSection(store, waiting, reasons),
    lanesSection(store, waiting.filter((task) => task.state === "READY"), now, selected),
    notReadySection(store, waiting.filter((task) => task.state !== "READY"), reasons, now, selected),
  ];
}

/** When nothing runs and nothing waits: where the waiting went, and which tasks waited longest. */
function lookBack(store, selected) {
  const causes = new Map();
  const waiters = [];
  for (const task of store.tasks.values()) {
    const waited = Object.values(task.waits).reduce((sum, ns) => sum + ns, 0);
    if (waited > 0) waiters.push([task, waited]);
    for (const [cause, ns] of Object.entries(task.waits)) causes.set(cause, (causes.get(cause) ?? 0) + ns);
  }
  if (!waiters.length) return [empty("Nothing runs and nothing waits", "Everything submitted so far has ended, and nothing had to wait.")];
  waiters.sort((a, b) => b[1] - a[1]);
  const all = waiters.reduce((sum, [, ns]) => sum + ns, 0);
  return [
    h("section", { "data-key": "over" }, heading("Where the waiting went", time(all), h("span", { class: "hint" }, "nothing runs and nothing waits; all tasks together")),
      waitDivision([...causes])),
    h("section", { "data-key": "longest" }, heading("Who waited longest"),
      h("ul", { class: "rows" }, waiters.slice(0, SHOWN_LONGEST).map(([task, ns]) => h("li", { "data-key": `o${task.number}` }, h("button", {
        class: "line item", type: "button", "data-task": task.number, "aria-pressed": String(task.number === selected),
      }, h("span", { class: "name" }, labelOf(task)), reasonChip(longest(task)), statePill(task), h("span", { class: "quiet grow" }, task.scope),
        h("span", { class: "num" }, time(ns))))))),
  ];
}

const longest = (task) => Object.entries(task.waits).reduce((a, b) => (b[1] > a[1] ? b : a))[0];

function runningSection(store, running, reasons, now, selected) {
  const slots = store.snapshot?.slots.limit;
  const forWhatItHolds = new Map();
  const forItsEnd = new Map();
  for (const [task, reason] of reasons) {
    const counts = store.isHeld(reason) ? forWhatItHolds : forItsEnd;
    if (store.tellsWho(reason)) for (const holder of store.holders(task, reason)) counts.set(holder, (counts.get(holder) ?? 0) + 1);
  }
  return h("section", { "data-key": "running" },
    heading("Running", slots ? `${runningCount(running, slots)} slots` : count(running.length)),
    running.length ? null : h("p", { class: "quiet" }, "Nothing runs at the moment."),
    h("div", { class: "cards" }, running.slice(0, SHOWN_RUNNING).map((task) =>
      h("button", {
        class: "card item", type: "button", "data-task": task.number, "data-key": `r${task.number}`,
        "aria-pressed": String(task.number === selected),
      },
        h("span", { class: "row" }, h("span", { class: "name" }, labelOf(task)), task.state === "RUNNING" ? null : statePill(task),
          h("span", { class: "num" }, time(now - task.started_ns))),
        h("span", { class: "row sub" }, priorityBadge(task.priority), h("span", { class: "scope" }, task.scope),
          Object.keys(task.demand).length ? h("span", { class: "holds" }, demand(task.demand)) : null,
          task.slot ? null : h("span", { class: "quiet" }, "takes no slot")),
        Object.keys(task.devices).length ? h("span", { class: "sub quiet units" }, `on ${unitNames(task.devices)}`) : null,
        task.place ? h("span", { class: "sub quiet" }, `on ${placeName(task.place)}`) : null,
        [[forWhatItHolds, "what it holds"], [forItsEnd, "its end"]].map(([counts, what]) => counts.has(task)
          ? h("span", { class: "blocks sub" }, `${count(counts.get(task))} ${counts.get(task) === 1 ? "waits" : "wait"} for ${what}`) : null)))),
    running.length > SHOWN_RUNNING ? h("p", { class: "quiet" }, `and ${count(running.length - SHOWN_RUNNING)} more`) : null);
}

function waitingSection(store, waiting, reasons) {
  const groups = new Map();
  for (const task of waiting) {
    const reason = reasons.get(task);
    const group = groups.get(reason) ?? { reason, tasks: 0, holders: new Map() };
    group.tasks += 1;
    if (group.tasks <= 200) for (const holder of store.holders(task, reason)) group.holders.set(holder.number, holder);
    groups.set(reason, group);
  }
  const sorted = [...groups.values()].sort((a, b) => b.tasks - a.tasks);
  const starved = store.snapshot?.counts.starved ?? 0;
  return h("section", { "data-key": "waiting" },
    heading("Waiting", count(waiting.length), starved ? h("span", { class: "warn" }, `${count(starved)} starved`) : null),
    sorted.length ? stack(sorted.map((group) =>
      [group.tasks, reasonVar(group.reason), `${group.tasks} for ${reasonText(group.reason)}`])) : null,
    h("ul", { class: "why" }, sorted.map((group) =>
      h("li", { "data-key": group.reason }, reasonChip(group.reason), " ", h("b", null, count(group.tasks)),
        ` ${group.tasks === 1 ? "waits" : "wait"} for ${reasonText(group.reason)}`, forWhom(group)))),
    waiting.length ? null : h("p", { class: "quiet" }, "No task waits."));
}

function forWhom(group) {
  const holders = [...group.holders.values()];
  if (!holders.length) return null;
  const verb = ["dependency", "overlap", "slot_higher"].includes(group.reason) ? ": " : ", held by ";
  return h("span", { class: "quiet" }, verb, holders.slice(0, 4).map((holder, index) =>
    [index ? ", " : "", h("button", { class: "link", type: "button", "data-task": holder.number }, labelOf(holder))]),
    holders.length > 4 ? ` and ${holders.length - 4} more` : null);
}

function lanesSection(store, ready, now, selected) {
  const pictured = new Map((store.snapshot?.lanes ?? []).map((lane) => [laneKey(lane, lane.scope), lane]));
  const lanes = new Map();
  for (const task of ready) {
    const key = laneOf(task);
    const lane = lanes.get(key) ?? { key, priority: task.priority, scope: task.scope, demand: task.demand, slot: task.slot, tasks: [] };
    lane.tasks.push(task);
    lanes.set(key, lane);
  }
  const sorted = inOrder([...lanes.values()], [...pictured.keys()]);
  if (!sorted.length) return null;
  return h("section", { "data-key": "lanes" },
    heading("Lanes", `${count(sorted.length)}`, h("span", { class: "hint" }, "READY tasks; in each lane the first one starts first")),
    sorted.slice(0, SHOWN_LANES).map((lane) => laneRow(store, lane, pictured.get(lane.key), now, selected)),
    sorted.length > SHOWN_LANES ? h("p", { class: "quiet" }, `and ${count(sorted.length - SHOWN_LANES)} more lanes`) : null);
}

/** Lanes as the server has them: by priority, then by the task that has waited longest; `pictured` are the keys in its order. */
export function inOrder(lanes, pictured) {
  const places = new Map(pictured.map((key, index) => [key, index]));
  const place = (lane) => places.get(lane.key) ?? Infinity;
  const oldest = new Map(lanes.map((lane) => [lane, Math.min(...lane.tasks.map((task) => task.ready_ns))]));
  return lanes.sort((a, b) => b.priority - a.priority || (place(a) === place(b) ? oldest.get(a) - oldest.get(b) : place(a) - place(b)));
}

/** The tasks of a lane in the order in which they start: as the server pictured them, then those that have come since. */
export function inLine(tasks, pictured) {
  const places = new Map(pictured.map((task, index) => [task.number, index]));
  const place = (task) => places.get(task.number) ?? Infinity;
  return tasks.sort((a, b) => (place(a) === place(b) ? a.ready_ns - b.ready_ns || entered(a) - entered(b) : place(a) - place(b)));
}

const entered = (task) => task.ready_seq ?? task.seq; // of a row of the server the latest event, which is seldom another one

function laneRow(store, lane, picture, now, selected) {
  const tasks = inLine(lane.tasks, picture?.tasks ?? []);
  const effective = new Map((picture?.tasks ?? []).map((task) => [task.number, task.effective_priority]));
  const head = tasks[0];
  const reason = store.reason(head);
  const starved = picture ? picture.starved : reason === "slot_higher";
  return h("article", { class: "lane", "data-key": lane.key },
    h("header", null,
      priorityBadge(lane.priority), h("span", { class: "name" }, lane.scope),
      Object.keys(lane.demand).length ? h("span", { class: "holds" }, demand(lane.demand)) : null,
      lane.slot ? null : h("span", { class: "quiet" }, "takes no slot"),
      reasonChip(reason, reason === "slot" ? [] : store.holders(head, reason)),
      starved ? h("span", { class: "warn", title: "a higher priority holds a slot while these wait" }, "starved") : null,
      h("span", { class: "num" }, `${count(tasks.length)} waiting`)),
    h("ol", { class: "queue" }, tasks.slice(0, SHOWN_IN_LANE).map((task) =>
      h("li", { "data-key": `w${task.number}` }, h("button", {
        class: "pill item", type: "button", "data-task": task.number, "aria-pressed": String(task.number === selected),
        style: { "--chip": `var(${reasonVar(reason)})` },
      }, h("span", { class: "name" }, labelOf(task)), h("span", { class: "num" }, time(now - task.ready_ns)),
        effective.has(task.number) && effective.get(task.number) !== task.priority
          ? h("span", { class: "lift", title: "effective priority" }, `↑${effective.get(task.number)}`) : null))),
    tasks.length > SHOWN_IN_LANE ? h("li", { class: "more" }, `+ ${count(tasks.length - SHOWN_IN_LANE)}`) : null));
}

function notReadySection(store, tasks, reasons, now, selected) {
  if (!tasks.length) return null;
  return h("section", { "data-key": "notready" },
    heading("Not ready yet", count(tasks.length), h("span", { class: "hint" }, "behind dependencies, a backoff, or a pause")),
    h("ul", { class: "rows" }, tasks.slice(0, SHOWN_NOT_READY).map((task) => {
      const reason = reasons.get(task);
      const holders = store.holders(task, reason);
      return h("li", { "data-key": `q${task.number}` }, h("button", {
        class: "line item", type: "button", "data-task": task.number, "aria-pressed": String(task.number === selected),
      }, h("span", { class: "name" }, labelOf(task)), reasonChip(reason),
        h("span", { class: "quiet grow" }, holders.length && reason === "dependency" ? `after ${names(holders, 3)}` : ""),
        h("span", { class: "num" }, time(now - task.submitted_ns))));
    })),
    tasks.length > SHOWN_NOT_READY ? h("p", { class: "quiet" }, `and ${count(tasks.length - SHOWN_NOT_READY)} more`) : null);
}
