// Periodics: how each fares, when it runs next, and a switch.

import { h } from "./dom.js";
import { count, time } from "./format.js";
import { cell, columnHeads, empty, heading } from "./parts.js";

const COLUMNS = ["Periodic", "On", "Every", "Next run", "Last run", "Runs", "Skipped", "Failures in a row", "Lately"];

export function render({ store, now, control, live }) {
  const told = new Map([...store.periodics.values()].map((periodic) => [periodic.id, periodic]));
  const list = live && store.snapshot
    ? store.snapshot.periodics.map((periodic) => ({ ...told.get(periodic.id), ...periodic }))
    : [...told.values()].map((periodic) => ({ ...periodic, ...fromTasks(store, periodic) }));
  if (!list.length) return [empty("No periodic tasks", "scope.periodic(fn, every=...) adds one.")];
  return [h("section", null, heading("Periodic tasks", count(list.length)), h("div", { class: "wide" },
    h("table", null,
      columnHeads(COLUMNS, 2, 7),
      h("tbody", null, list.map((periodic) => row(periodic, now, control)))))),
  ];
}

function fromTasks(store, periodic) {
  const runs = [...store.tasks.values()].filter((task) => task.started_ns !== null && `${task.scope}/${task.periodic}` === periodic.id);
  let failures = 0;
  for (const task of runs) if (task.outcome) failures = task.outcome === "success" ? 0 : failures + 1;
  return { run_count: runs.length, consecutive_failures: failures, last_run_at: runs.at(-1)?.started_ns ?? null, next_run_at: null };
}

function row(periodic, now, control) {
  const failing = periodic.consecutive_failures > 0;
  return h("tr", { "data-key": periodic.id },
    h("td", null, h("span", { class: "name" }, periodic.id), periodic.overlap ? h("span", { class: "quiet", title: "what happens to a tick while an iteration is there" }, ` overlap: ${periodic.overlap}`) : null),
    h("td", null, h("button", {
      type: "button", class: "switch", role: "switch", "aria-checked": String(periodic.enabled), disabled: !control,
      "aria-label": `${periodic.id} is ${periodic.enabled ? "on" : "off"}`,
      "data-periodic": periodic.id, "data-enabled": String(periodic.enabled),
    }, periodic.enabled ? "on" : "off")),
    cell("Every", time((periodic.interval_ms ?? 0) * 1e6)),
    cell("Next run", periodic.next_run_at ? `in ${time(Math.max(0, periodic.next_run_at - now))}` : "–"),
    cell("Last run", periodic.last_run_at ? `${time(now - periodic.last_run_at)} ago` : "never"),
    periodic.running_since ? cell("Running for", time(now - periodic.running_since)) : null,
    cell("Runs", count(periodic.run_count)),
    cell("Skipped", count(periodic.skipped ?? 0), { title: periodic.last_skip ?? null }),
    cell("Failures in a row", failing ? `${periodic.consecutive_failures} (${periodic.last_error ?? "?"})` : "0",
      { class: failing ? "num bad" : "num", title: periodic.last_error ?? null }),
    h("td", { "data-label": "Lately" }, h("span", { class: "ticks" }, (periodic.ticks ?? []).slice(-24).map(([, kind]) => h("span", { class: kind, title: kind })))));
}
