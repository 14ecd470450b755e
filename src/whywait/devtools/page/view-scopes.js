// Scopes: the tree, with states.

import { h } from "./dom.js";
import { count, hasFailed } from "./format.js";
import { cell, columnHeads, empty, heading } from "./parts.js";
import { isActive } from "./store.js";

const COLUMNS = ["Scope", "State", "Slots", "Running", "Waiting", "Ended", "Failed", ""];

export function render({ store, control }) {
  const scopes = [...store.scopes.values()];
  if (!scopes.length) return [empty("No scopes yet", "A scope appears when it is opened.")];
  const counts = new Map();
  for (const task of store.tasks.values()) {
    if (task.retried_as !== null) continue; // its last attempt counts
    const row = counts.get(task.scope) ?? { running: 0, waiting: 0, ended: 0, failed: 0 };
    if (task.outcome) row.ended += 1;
    else if (isActive(task)) row.running += 1;
    else row.waiting += 1;
    if (hasFailed(task)) row.failed += 1;
    counts.set(task.scope, row);
  }
  const children = Map.groupBy ? Map.groupBy(scopes, (scope) => scope.parent ?? "") : group(scopes);
  const known = new Set(scopes.map((scope) => scope.key));
  const roots = scopes.filter((scope) => !scope.parent || !known.has(scope.parent));
  return [h("section", null, heading("Scopes", count(scopes.length)), h("div", { class: "wide" },
    h("table", null,
      columnHeads(COLUMNS, 2, 6),
      h("tbody", null, roots.flatMap((scope) => rows(scope, 0, children, counts, control))))))];
}

function group(scopes) {
  const groups = new Map();
  for (const scope of scopes) groups.set(scope.parent ?? "", [...(groups.get(scope.parent ?? "") ?? []), scope]);
  return groups;
}

function rows(scope, depth, children, counts, control) {
  const row = counts.get(scope.key) ?? { running: 0, waiting: 0, ended: 0, failed: 0 };
  const limit = scope.slots?.limit;
  const used = limit === null || limit === undefined ? "–" : `${limit - scope.slots.free} / ${limit}`;
  const alive = scope.state !== "DISPOSED" && scope.state !== "DISPOSING";
  const verbs = !control || !alive ? [] : [scope.state === "SUSPENDED" ? "resume" : scope.state === "RUNNING" ? "suspend" : null, "dispose"];
  const line = h("tr", { "data-key": scope.key },
    h("td", null, h("span", { class: "tree", style: { "--depth": depth } }), h("span", { class: "name" }, scope.key)),
    h("td", null, h("span", { class: `state scope-${scope.state.toLowerCase()}` }, scope.state.toLowerCase())),
    cell("Slots", used),
    ["running", "waiting", "ended", "failed"].map((name, index) => cell(COLUMNS[3 + index], count(row[name]))),
    h("td", { class: "verbs" }, verbs.filter(Boolean).map((verb) =>
      h("button", { type: "button", class: verb === "dispose" ? "danger" : null, "data-scope": scope.key, "data-verb": verb }, verb))));
  return [line, ...(children.get(scope.key) ?? []).flatMap((child) => rows(child, depth + 1, children, counts, control))];
}
