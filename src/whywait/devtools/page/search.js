// Search over everything that has a name: tasks, scopes, periodics, resources, causes.

import { h } from "./dom.js";
import { count, counted, labelOf, reasonName } from "./format.js";
import { statePill } from "./parts.js";

const SHOWN = 12;

/** Return what matches: [{kind, label, task? , view?, extra}], the best first. */
export function find(store, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return { hits: [], total: 0 };
  const hits = [];
  const add = (label, hit) => {
    const at = label.toLowerCase().indexOf(wanted);
    if (at !== -1) hits.push({ label, rank: at === 0 ? (label.length === wanted.length ? 0 : 1) : 2, ...hit });
  };
  for (const task of store.tasks.values()) {
    if (task.retried_as === null) {
      const before = hits.length;
      add(labelOf(task), { kind: "task", task });
      if (hits.length === before && (`#${task.number}` === wanted || `${task.scope}/${labelOf(task)}`.toLowerCase().includes(wanted))) {
        hits.push({ label: labelOf(task), kind: "task", task, rank: 3 });
      }
    }
  }
  for (const key of store.scopes.keys()) add(key, { kind: "scope", view: "scopes" });
  for (const id of store.periodics.keys()) add(id, { kind: "periodic", view: "periodics" });
  for (const gate of store.snapshot?.budget ?? []) add(gate.name, { kind: "resource", view: "budget" });
  const causes = new Map();
  for (const task of store.tasks.values()) {
    const reason = store.reason(task);
    if (reason) causes.set(reason, (causes.get(reason) ?? 0) + 1);
    if (task.cause) causes.set(task.cause, (causes.get(task.cause) ?? 0) + 1);
  }
  for (const [cause, tasks] of causes) add(reasonName(cause), { kind: "cause", view: store.laneCauses.size ? "lanes" : "failures", extra: counted(tasks, "task") });
  const alive = (hit) => (hit.task?.outcome ? 1 : 0);
  hits.sort((a, b) => a.rank - b.rank || alive(a) - alive(b) || (b.task?.number ?? 0) - (a.task?.number ?? 0));
  return { hits: hits.slice(0, SHOWN), total: hits.length };
}

/** The list under the search box. */
export function render({ hits, total }, text, active) {
  if (!text.trim()) return [];
  return [h("ul", { class: "hits", role: "listbox", id: "hits" },
    hits.map((hit, index) => h("li", {
      role: "option", id: `hit-${index}`, "aria-selected": String(index === active), "data-task": hit.task?.number, "data-view": hit.view,
    }, h("span", { class: "tag" }, hit.kind), h("span", { class: "name" }, hit.label),
      hit.task ? [h("span", { class: "quiet" }, hit.task.scope), statePill(hit.task)] : null, hit.extra ? h("span", { class: "quiet" }, hit.extra) : null)),
    hits.length ? null : h("li", { class: "quiet" }, "nothing has that name"),
    total > hits.length ? h("li", { class: "quiet" }, `and ${count(total - hits.length)} more`) : null)];
}
