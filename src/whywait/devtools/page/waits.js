// How a task's wait divides over time, for drawing. The parts are exact; their order within a wait is the usual one.

const FIRST = ["dependency", "backoff", "overlap"];
const settled = new WeakMap(); // the parts of waits that are over: they change no more

/** The parts of a task's wait: [[from ns, to ns, cause], ...]. */
export function waitParts(task, reason, now) {
  if (task.started_ns === null && task.ended_ns === null) return divide(task, reason, now);
  const known = settled.get(task);
  if (known?.seq === task.seq) return known.parts;
  const parts = divide(task, reason, now);
  settled.set(task, { seq: task.seq, parts });
  return parts;
}

function divide(task, reason, now) {
  const from = task.submitted_ns;
  const to = task.started_ns ?? task.ended_ns ?? now;
  if (from === null || to <= from) return [];
  const waits = Object.entries(task.waits);
  if (waits.length) {
    waits.sort((a, b) => rank(a[0]) - rank(b[0]));
    const parts = [];
    let at = from;
    for (const [cause, ns] of waits) {
      parts.push([at, Math.min(to, at + ns), cause]);
      at += ns;
    }
    if (to - at > 1000 && task.started_ns === null && task.ended_ns === null) parts.push([at, to, reason ?? "slot"]);
    return parts;
  }
  if (task.state !== "READY" && task.started_ns === null) return [[from, to, reason ?? "dependency"]];
  if (task.ready_ns !== null && task.ready_ns > from) {
    return [[from, task.ready_ns, task.of !== null ? "backoff" : "dependency"], [task.ready_ns, to, reason ?? "slot"]];
  }
  return [[from, to, reason ?? "slot"]];
}

const rank = (cause) => (FIRST.includes(cause) ? FIRST.indexOf(cause) : cause === "paused" ? 5 : 4);
