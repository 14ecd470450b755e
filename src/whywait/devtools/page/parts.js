// Small pieces that several views share.

import { h } from "./dom.js";
import { labelOf, priorityName, reasonName, reasonText, reasonVar, stateName, stateVar, time } from "./format.js";

/** A coloured chip that says what is waited for, and which tasks hold it. */
export function reasonChip(reason, holders = []) {
  const who = holders.length ? h("span", { class: "who" }, names(holders)) : null;
  return h(
    "span",
    { class: "chip", style: { "--chip": `var(${reasonVar(reason)})` }, title: `waits for ${reasonText(reason)}` },
    h("span", { class: "dot" }), reasonName(reason), who,
  );
}

/** The first names of a list of tasks. */
export function names(tasks, most = 2) {
  const first = tasks.slice(0, most).map(labelOf).join(", ");
  return tasks.length > most ? `${first} +${tasks.length - most}` : first;
}

/** A pill with the state or outcome of a task. */
export const statePill = (task) =>
  h("span", { class: "state", style: { "--chip": `var(${stateVar(task)})` } }, stateName(task));

/** A badge with a priority. */
export const priorityBadge = (value, effective = value) =>
  h(
    "span",
    { class: "priority", title: `priority ${value} ${priorityName(value)}` },
    effective !== value ? [String(value), h("span", { class: "lift" }, `↑${effective}`)] : String(value),
  );

/** A link that opens a task in the panel. */
export const taskLink = (task, ...more) =>
  h("button", { class: "link", type: "button", "data-task": task.number }, h("span", { class: "name" }, labelOf(task)), ...more);

/** A stacked bar: [[value, CSS variable, title], ...]. */
export function stack(parts, total = parts.reduce((sum, [value]) => sum + value, 0)) {
  return h(
    "div",
    { class: "stack", role: "img", "aria-label": parts.map(([, , title]) => title).join(", ") },
    parts.filter(([value]) => value > 0).map(([value, colour, title]) =>
      h("span", {
        title,
        style: { width: `${(100 * value) / Math.max(total, 1e-9)}%`, background: `var(${colour})` },
      }),
    ),
  );
}

/** How waiting divides by cause: [[cause, ns], ...]. */
export function waitDivision(waits) {
  const sorted = [...waits].sort((a, b) => b[1] - a[1]);
  const total = sorted.reduce((sum, [, ns]) => sum + ns, 0);
  return [
    stack(sorted.map(([cause, ns]) => [ns, reasonVar(cause), `${time(ns)} ${reasonName(cause)}`])),
    h("ul", { class: "parts" }, sorted.map(([cause, ns]) => h("li", { "data-key": cause }, reasonChip(cause), h("span", { class: "num" }, time(ns)),
      h("span", { class: "quiet share" }, `${Math.round((100 * ns) / total)} %`)))),
  ];
}

/** What colours mean: [[text, CSS variable, title], ...]. */
export const legend = (about, keys) =>
  h("span", { class: "legend" }, h("span", { class: "quiet" }, about), keys.map(([text, colour, title]) =>
    h("span", { class: "key", "data-key": text, title }, h("span", { class: "dot", style: { "--chip": `var(${colour})` } }), text)));

/** What the colours of tasks mean, for the states that there are. */
export function stateLegend(tasks) {
  const states = new Map();
  for (const task of tasks) states.set(stateVar(task), stateName(task));
  return legend("tasks", [...states].map(([colour, text]) => [text, colour]).sort());
}

/** The head of a table; the columns from `first` to `last` hold numbers. */
export const columnHeads = (texts, first, last) =>
  h("thead", null, h("tr", null, texts.map((text, index) => h("th", { scope: "col", class: index >= first && index <= last ? "num" : null }, text))));

/** A number in a table; where there is no room for columns its label stands before it. */
export const cell = (label, value, props) => h("td", { class: "num", "data-label": label, ...props }, value);

/** What a view shows that has nothing to show. */
export const empty = (title, text) => h("div", { class: "empty" }, h("strong", null, title), h("p", null, text));

/** A heading with a figure. */
export const heading = (text, figure, ...more) =>
  h("h2", null, text, figure === undefined ? null : h("span", { class: "figure" }, String(figure)), ...more);
