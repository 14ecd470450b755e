// Periodics: how each fares, when it runs next, and a switch.

import { h } from "./dom.js";
import { count, time } from "./format.js";
import { empty, heading } from "./parts.js";

export function render({ store, now, control, live }) {
  const told = new Map([...store.periodics.values()].map((periodic) => [periodic.runtime_id, periodic]));
  const list = live && store.snapshot
    ? store.snapshot.periodics.map((periodic) => ({ ...told.get(periodic.runtime_id), ...periodic }))
    : [...told.values()].map((periodic) => ({ ...periodic, ...fromTasks(store, periodic) }));
  if (!list.length) return [empty("No periodic tasks", "scope.periodic(fn, every=...) adds one.")];
  return [h("section", null, heading("Periodic tasks", count(list.length)), h("div", { class: "wide" },
    h("table", null,
      h("thead", null, h("tr", null, ["Periodic", "On", "Every", "Next run", "Last run", "Runs", "Skipped", "Failures in a row", "Lately"]
        .map((text, index) => h("th", { scope: "col", class: index > 1 && index < 8 ? "num" : null }, text)))),
      h("tbody", null, list.map((periodic) => row(periodic, now, control)))))),
  ];
}

function fromTasks(store, periodic) {
  const runs = [...store.tasks.values()].filter((task) => task.started_ns !== null && `${task.scope}/${task.periodic}` === periodic.runtime_id);
  let failures = 0;
  for (const task of runs) if (task.outcome) failures = task.outcome === "SUCCESS" ? 0 : failures + 1;
  return { run_count: runs.length, consecutive_failures: failures, last_run_at: runs.at(-1)?.started_ns ?? null, next_run_at: null };
}

function row(periodic, now, control) {
  const failing = periodic.consecutive_failures > 0;
  return h("tr", { "data-key": periodic.runtime_id },
    h("td", null, h("span", { class: "name" }, periodic.runtime_id), periodic.overlap ? h("span", { class: "quiet" }, ` ${periodic.overlap}`) : null),
    h("td", null, h("button", {
      type: "button", class: "switch", role: "switch", "aria-checked": String(periodic.enabled), disabled: !control,
      "aria-label": `${periodic.runtime_id} is ${periodic.enabled ? "on" : "off"}`,
      "data-periodic": periodic.runtime_id, "data-enabled": String(periodic.enabled),
    }, periodic.enabled ? "on" : "off")),
    h("td", { class: "num" }, time((periodic.interval_ms ?? 0) * 1e6)),
    h("td", { class: "num" }, periodic.next_run_at ? `in ${time(Math.max(0, periodic.next_run_at - now))}` : "–"),
    h("td", { class: "num" }, periodic.last_run_at ? `${time(now - periodic.last_run_at)} ago` : "never"),
    h("td", { class: "num" }, count(periodic.run_count)),
    h("td", { class: "num", title: periodic.last_skip ?? null }, count(periodic.skipped ?? 0)),
    h("td", { class: failing ? "num bad" : "num", title: periodic.last_error ?? null },
      failing ? `${periodic.consecutive_failures} (${periodic.last_error ?? "?"})` : "0"),
    h("td", null, h("span", { class: "ticks" }, (periodic.ticks ?? []).slice(-24).map(([, kind]) => h("span", { class: kind, title: kind })))));
}
