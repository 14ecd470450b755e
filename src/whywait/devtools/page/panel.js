// The task panel: why it waits in full, its neighbours, its attempts and its story.

import { h } from "./dom.js";
import { amount, count, demand, labelOf, placeName, priorityName, reasonName, reasonText, reasonVar, size, time, unitNames } from "./format.js";
import { priorityBadge, reasonChip, statePill, taskLink, waitDivision } from "./parts.js";
import { holdsSlot, isActive } from "./store.js";

/** `detail` is the server's answer for this task, null while it is not there or if there is no server. */
export function render({ store, now, control, detail, failure }, task) {
  const why = detail?.why ?? null;
  return [
    h("header", null,
      h("button", { type: "button", class: "close", "data-close": "", "aria-label": "close the panel" }, "✕"),
      h("h2", { class: "name", tabindex: -1 }, labelOf(task)),
      h("div", { class: "row" }, statePill(task), priorityBadge(task.priority, why?.effective_priority ?? task.priority),
        h("span", { class: "quiet" }, priorityName(task.priority)), h("span", { class: "quiet" }, `in ${task.scope}`),
        task.attempt > 1 ? h("span", { class: "tag" }, `attempt ${task.attempt}`) : null,
        h("span", { class: "quiet" }, `#${task.number}`)),
      control ? h("div", { class: "row verbs" }, verbs(task).map((verb) =>
        h("button", { type: "button", "data-act": verb, "data-number": task.number, class: verb === "cancel" ? "danger" : null }, verb))) : null,
      failure ? h("p", { class: "bad", role: "alert" }, failure) : null),
    whySection(store, task, why, now),
    waitSection(store, task, why, now),
    neighbours("Depends on", store.awaits(task), "nothing"),
    neighbours("Awaited by", store.awaitedBy(task)),
    attempts(store, task, now),
    streams(detail?.story ?? store.story(task), detail?.streams, now),
    story(store, detail?.story ?? store.story(task), now),
  ];
}

function verbs(task) {
  if (task.outcome) return [];
  return [task.state === "PAUSED" ? "resume" : "pause", "cancel"];
}

function whySection(store, task, why, now) {
  if (task.outcome) {
    return h("section", { class: "answer" }, h("h3", null, "How it ended"), h("p", { class: "lead" }, ended(task)),
      h("p", { class: "quiet" }, task.started_ns === null ? "it never started" : `ran ${time(task.ended_ns - task.started_ns)}${onUnits(task)}`),
      used(task) ? h("p", { class: task.overdrawn ? "warn" : "quiet" }, used(task)) : null,
      task.place ? h("p", { class: "quiet" }, `${task.place.engine} ran it on ${placeName(task.place)}, process ${task.place.pid}`) : null);
  }
  if (isActive(task)) {
    const held = [holdsSlot(task) ? "a slot" : "", demand(task.demand)].filter(Boolean).join(" and ") || "nothing";
    const placement = task.place ? null : why?.placement ?? null; // permitted, and a cluster has not placed it yet
    return h("section", { class: "answer" }, h("h3", null, "What it does"),
      h("p", { class: "lead" }, doing(task, placement), ` since ${time(now - task.started_ns)}, holding ${held}${onUnits(task)}.`),
      task.place ? h("p", null, `${task.place.engine} runs it on ${placeName(task.place)}, process ${task.place.pid}.`) : null,
      (placement?.missing ?? []).map((row) => h("p", { class: "warn" }, shortage(placement.engine, row))),
      blockedBy(store, task));
  }
  const reason = why?.primary ?? store.reason(task);
  const reasons = why?.reasons ?? [];
  return h("section", { class: "answer" }, h("h3", null, "Why it waits"),
    h("p", { class: "lead" }, "Waits for ", h("b", { style: { color: `var(${reasonVar(reason)})` } }, reasonText(reason)), `, ${time(now - task.submitted_ns)} in all`,
      why?.starved ? h("span", { class: "warn" }, "starved") : null),
    h("ul", { class: "reasons" }, reasons.length ? reasons.map((one) => reasonRow(store, one)) : fallback(store, task, reason)),
    why?.position !== null && why?.position !== undefined ? h("p", { class: "quiet" }, why.position ? `${count(why.position)} ahead in its lane` : "first in its lane", ahead(why)) : null,
    why?.lifted_in_ns ? h("p", { class: "quiet" }, `aging lifts it in ${time(why.lifted_in_ns)}`) : null,
    why?.starts_when?.length ? [h("h4", null, "Starts when"), h("ul", { class: "when" }, why.starts_when.map((text) => h("li", null, conditionText(text))))] : null);
}

const onUnits = (task) => (Object.keys(task.devices).length ? ` on ${unitNames(task.devices)}` : "");

function doing(task, placement) {
  if (task.state === "PAUSED") return "Paused: somebody has to resume it";
  if (task.state === "DISPOSING") return `Asked to end (${task.cause}), has not ended yet`;
  return placement && !placement.node ? `Permitted, waits for ${placement.engine} to place it` : "Running";
}

function shortage(engine, row) {
  const [need, largest, free] = [row.need, row.largest, row.free].map((value) => amount(row.name, value));
  return row.need > row.largest
    ? `${engine} has no node for it: it needs ${need} ${row.name}, and the largest has ${largest}`
    : `${engine} has too little free: it needs ${need} ${row.name}, and the node that comes closest has ${free}`;
}

const conditionText = (condition) => (typeof condition === "string" ? condition : condition.text ?? JSON.stringify(condition));

function ahead(why) {
  const all = (why.ahead ?? []).reduce((sum, level) => sum + level.tasks, 0);
  const first = (why.ahead ?? []).flatMap((level) => level.first).slice(0, 3).join(", ");
  return all ? `, ${count(all)} ahead in all: ${first}${all > 3 ? " …" : ""}` : "";
}

function fallback(store, task, reason) {
  const holders = store.holders(task, reason);
  return h("li", null, reasonChip(reason), holders.length ? h("span", null, reason === "dependency" ? "after " : "held by ", links(holders)) : null);
}

const links = (tasks, most = 6) => [
  tasks.slice(0, most).map((task, index) => [index ? ", " : "", taskLink(task)]),
  tasks.length > most ? ` and ${count(tasks.length - most)} more` : null,
];

/** Every unit of a device, with what is free of it and the tasks on it. */
function deviceRow(reason) {
  const wants = reason.share ? `${size(reason.share)} on ${reason.need === 1 ? "one" : `each of ${reason.need}`}` : count(reason.need);
  return h("li", null,
    h("div", null, reasonChip(reason.name), h("span", null, `needs ${wants}, ${reason.free ? count(reason.free) : "none"} of ${count(reason.limit)} fits`),
      reason.never ? h("span", { class: "bad" }, " can never open") : null),
    reason.units.map((unit) => h("div", { class: "held", "data-key": unit.name }, `${reason.name} ${unit.name}: ${unitState(unit)}`,
      unit.holders.map((holder, index) => [index ? ", " : " held by ",
        h("button", { type: "button", class: "link", "data-task": holder.number }, labelOf(holder)), h("span", { class: "quiet" }, ` ${time(holder.running_ns)}`)]),
      unit.holders_total > unit.holders.length ? ` and ${count(unit.holders_total - unit.holders.length)} more` : null)),
    reason.units_left_out ? h("div", { class: "quiet" }, `and ${count(reason.units_left_out)} more`) : null);
}

function unitState(unit) {
  if (!unit.present) return "gone";
  if (unit.whole || !unit.size) return unit.holders_total ? "taken" : "free";
  return `${size(Math.max(0, unit.free))} of ${size(unit.size)} free`;
}

/** That a holder uses more than it asked for, if it does. */
const beyond = (holder, show) => (typeof holder.asked === "number" ? ` (asked for ${holder.asked ? show(holder.asked) : "none"})` : "");

function reasonRow(store, reason) {
  if (reason.kind === "device") return deviceRow(reason);
  const show = (value) => amount(reason.name, value, reason.limit ?? value);
  const gate = reason.limit !== null && reason.limit !== undefined && ["slot", "scope_slots", "resource"].includes(reason.kind);
  const holders = reason.holders ?? [];
  const blocking = reason.tasks ?? [];
  return h("li", null,
    h("div", null, reasonChip(reason.name),
      gate ? h("span", null, reason.kind === "resource" ? `needs ${show(reason.need)}, ${show(Math.max(0, reason.free))} of ${show(reason.limit)} free` : `all ${reason.limit} taken`) : h("span", null, reasonText(reason.name)),
      reason.scope ? h("span", { class: "quiet" }, ` of ${reason.scope}`) : null,
      reason.never ? h("span", { class: "bad" }, " can never open") : null),
    holders.length ? h("div", { class: "held" }, "held by ", holders.slice(0, 8).map((holder, index) => [index ? ", " : "",
      h("button", { type: "button", class: "link", "data-task": holder.number }, labelOf(holder)),
      h("span", { class: "quiet" }, ` ${reason.kind === "resource" ? `${show(holder.amount)}${beyond(holder, show)}, ` : ""}${time(holder.running_ns)}`)]),
      holders.length > 8 ? ` and ${count(holders.length - 8)} more` : null) : null,
    blocking.length ? h("div", { class: "held" }, "waits for ", blocking.slice(0, 8).map((other, index) => [index ? ", " : "",
      h("button", { type: "button", class: "link", "data-task": other.number }, labelOf(other)), h("span", { class: "quiet" }, ` ${other.state.toLowerCase()}`), chainOf(store, other)]),
      blocking.length > 8 ? ` and ${count(blocking.length - 8)} more` : null) : null);
}

/** What a dependency itself waits for, step by step down to the task that holds things up. */
function chainOf(store, other) {
  if (other.chain?.length) {
    return [h("span", { class: "quiet" }, ", which waits for "), other.chain.map((next, index) => [index ? ", " : "",
      h("button", { type: "button", class: "link", "data-task": next.number }, labelOf(next)), chainOf(store, next)])];
  }
  const task = store.latest(other.number);
  const reason = task ? store.reason(task) : null;
  if (!reason) return null;
  const holders = store.holders(task, reason);
  return h("span", { class: "quiet" }, `, which waits for ${reasonText(reason)}`, holders.length ? [" ", links(holders, 2)] : null);
}

/** What it used: "exit code 3, asked 6.0 GB, peak 2.1 GB (sampled), CPU 3.2 s". */
function used(task) {
  const asked = task.demand.ram;
  return [
    task.exit_signal ? `killed by ${task.exit_signal}` : null,
    task.exit_code === null || task.exit_signal ? null : `exit code ${task.exit_code}`,
    asked && task.peak_ram !== null ? `asked ${size(asked)}` : null,
    task.peak_ram === null ? null : `peak ${size(task.peak_ram)} (${task.measured})`,
    task.cpu_ms === null ? null : `CPU ${time(task.cpu_ms * 1e6)}`,
  ].filter(Boolean).join(", ");
}

function ended(task) {
  if (task.outcome === "success") return "It succeeded.";
  if (task.outcome === "unseen") return "It has ended; how was not seen, because events were skipped.";
  return [`${task.outcome} (${task.cause ?? "no cause given"})`, task.root ? [`, because `, h("b", null, task.root), " did not succeed"] : null, "."];
}

function blockedBy(store, task) {
  const behind = new Map([["what it holds", []], ["its end", []]]);
  for (const other of store.tasks.values()) {
    const reason = store.reason(other);
    const list = behind.get(store.isHeld(reason) ? "what it holds" : "its end");
    if (list.length <= 50 && store.tellsWho(reason) && store.holders(other, reason).includes(task)) list.push(other);
  }
  return [...behind].filter(([, tasks]) => tasks.length).map(([what, tasks]) =>
    h("p", { "data-key": what }, `${tasks.length > 50 ? "more than 50" : count(tasks.length)} ${tasks.length === 1 ? "waits" : "wait"} for ${what}: `, links(tasks, 5)));
}

function waitSection(store, task, why, now) {
  const waits = Object.entries(why?.breakdown ?? task.waits).filter(([, ns]) => ns > 0);
  if (!waits.length) return task.started_ns === null ? null : h("section", null, h("h3", null, "Its wait"), h("p", { class: "quiet" }, "It did not wait."));
  const total = waits.reduce((sum, [, ns]) => sum + ns, 0);
  return h("section", null, h("h3", null, `Its wait: ${time(total)}`), waitDivision(waits));
}

function neighbours(title, tasks, none) {
  if (!tasks.length && !none) return null;
  return h("section", null, h("h3", null, title), tasks.length
    ? h("ul", { class: "plain" }, tasks.slice(0, 20).map((task) => h("li", { "data-key": task.number }, taskLink(task), " ", statePill(task))),
      tasks.length > 20 ? h("li", { class: "quiet" }, `and ${count(tasks.length - 20)} more`) : null)
    : h("p", { class: "quiet" }, none));
}

function attempts(store, task, now) {
  let first = task;
  while (first.of !== null && store.tasks.has(first.of)) first = store.tasks.get(first.of);
  const list = [];
  for (let each = first; each; each = each.retried_as !== null ? store.tasks.get(each.retried_as) : null) list.push(each);
  if (list.length < 2) return null;
  return h("section", null, h("h3", null, "Attempts"), h("ol", { class: "plain" }, list.map((each) =>
    h("li", { "data-key": each.number }, h("button", { class: "link", type: "button", "data-task": each.number, "aria-current": each === task ? "true" : null }, `attempt ${each.attempt}`), " ", statePill(each),
      h("span", { class: "quiet" }, each.cause ? ` ${each.cause}` : "", each.started_ns !== null ? `, ran ${time((each.ended_ns ?? now) - each.started_ns)}` : "")))));
}

/** The streams of a task and how often each gives something: from its events, and live from the server's counts. */
function streams(story, counts, now) {
  const seen = new Map();
  for (const event of story) {
    const name = event.details?.stream;
    if (event.kind === "STREAM_OPENED") seen.set(name, { name, from: event.time_ns, to: now, chunks: counts?.[name] ?? 0, open: true });
    if (event.kind === "STREAM_CLOSED" && seen.has(name)) Object.assign(seen.get(name), { to: event.time_ns, chunks: event.details.chunks, open: false });
  }
  if (!seen.size) return null;
  return h("section", null, h("h3", null, "Streams"), h("ul", { class: "plain" }, [...seen.values()].map((stream) =>
    h("li", { "data-key": stream.name }, h("span", { class: "name" }, stream.name), h("span", { class: "tag" }, stream.open ? "open" : "closed"),
      h("span", { class: "num" }, `${count(stream.chunks)} chunks`),
      stream.chunks ? h("span", { class: "quiet" }, `one every ${time((stream.to - stream.from) / stream.chunks)}`) : null))));
}

function story(store, events, now) {
  if (!events.length) return null;
  const first = events[0].time_ns;
  return h("section", null, h("h3", null, "Its story"), h("ol", { class: "story" }, events.slice(-200).map((event, index, all) =>
    h("li", { "data-key": event.seq }, h("span", { class: "num", title: `${time(now - event.time_ns)} ago` }, `+${time(event.time_ns - first)}`),
      h("span", { class: "kind" }, event.kind.replace(/^TASK_/, "").replaceAll("_", " ").toLowerCase()),
      h("span", { class: "quiet" }, detailText(store, event), index ? ` (${time(event.time_ns - all[index - 1].time_ns)} later)` : "")))));
}

function detailText(store, event) {
  const details = { ...event.details };
  if (details.waits) details.waits = `: ${Object.entries(details.waits).map(([cause, ns]) => `${time(ns)} ${reasonName(cause)}`).join(", ")}`;
  if (details.demand) details.demand = demand(details.demand);
  if (details.devices) details.devices = unitNames(details.devices);
  if (details.starved_ns) details.starved_ns = time(details.starved_ns);
  for (const key of ["after", "after_ended"]) if (details[key]) details[key] = details[key].map((number) => labelOf(store.tasks.get(number) ?? { id: `#${number}` })).join(", ");
  return Object.entries(details).map(([key, value]) => `${key.replace(/_ns$/, "").replaceAll("_", " ")} ${value}`).join(", ");
}
