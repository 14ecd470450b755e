// Puts the page together: the connection fills the store, a few times a second the chosen view is shown anew.

import { act, Connection, get, keepToken, takeToken } from "./api.js";
import { h, show } from "./dom.js";
import { count, counted, hasFailed, runningCount, time } from "./format.js";
import * as panel from "./panel.js";
import { parseSaved } from "./saved.js";
import * as search from "./search.js";
import { isActive, Store } from "./store.js";
import * as budget from "./view-budget.js";
import * as failures from "./view-failures.js";
import * as graph from "./view-graph.js";
import * as lanes from "./view-lanes.js";
import * as periodics from "./view-periodics.js";
import * as scopes from "./view-scopes.js";
import * as timeline from "./view-timeline.js";

const VIEWS = [["lanes", "Lanes", lanes], ["timeline", "Timeline", timeline], ["graph", "Graph", graph], ["budget", "Budget", budget], ["periodics", "Periodics", periodics], ["failures", "Failures", failures], ["scopes", "Scopes", scopes]];
const RENDER_MS = 250;
const RENDER_SHARE = 0.05; // of the time: a page that shows a lot shows it less often, and moves as smoothly
const DETAIL_MS = 1000;
const THEME = "whywait-theme";
const DARK = matchMedia("(prefers-color-scheme: dark)");

const at = (id) => document.getElementById(id);
const store = new Store();
const state = {
  view: "lanes", selected: null, detail: null, detailAt: 0, failure: null, status: "connecting", frozenNs: null,
  text: "", active: 0, notice: null, rendered: -1, restUntil: 0,
};
let connection = new Connection(store, (status) => {
  if (state.status === status) return;
  state.status = status;
  draw(true);
});

/** The run's clock: live it moves on, otherwise it stands at the last event. */
function now() {
  if (state.frozenNs !== null) return state.frozenNs;
  if (state.status !== "live") return state.lastNow && state.status !== "saved" && state.status !== "file" ? Math.max(state.lastNow, store.lastNs) : store.lastNs;
  const { server_ns, local_ms } = connection.clock;
  state.lastNow = Math.max(store.lastNs, server_ns + (performance.now() - local_ms) * 1e6);
  return state.lastNow;
}

const live = () => state.status === "live" || state.status === "disconnected" || state.status === "finished";
const mayControl = () => Boolean(state.status === "live" && connection.info?.control);

function context() {
  return { store, now: now(), selected: state.selected, control: mayControl(), live: live(), detail: state.detail, failure: state.failure };
}

// Drawing

function draw(force = false) {
  if (state.frozenNs !== null && !force) return;
  const moving = state.status === "live";
  const began = performance.now();
  if (!force && (began < state.restUntil || (!moving && state.rendered === store.version))) return;
  state.rendered = store.version;
  const all = context();
  show(at("bar"), bar(all));
  show(at("tabs"), tabs());
  document.title = connection.info?.name ? `${connection.info.name} · whywait` : "whywait";
  show(at("notice"), notice());
  const main = at("main");
  const [, , view] = VIEWS.find(([name]) => name === state.view);
  if (main.dataset.view !== state.view) {
    main.replaceChildren();
    main.dataset.view = state.view;
  }
  if (state.status === "connecting" && !store.tasks.size) show(main, h("p", { class: "empty" }, "Loading …"));
  else if (state.status === "locked" && !store.tasks.size) show(main, tokenForm());
  else {
    show(main, view.render(all));
    view.after?.(main, all);
  }
  drawPanel(all);
  state.restUntil = began + (performance.now() - began) / RENDER_SHARE;
}

/** What is shown while this page has no token that the server takes. */
function tokenForm() {
  return h("form", { class: "empty", id: "unlock", "data-key": "unlock" }, h("strong", null, "This page needs the token of the run"),
    h("p", null, "Open the whole address that the run has printed, or paste that address or the token here."),
    h("p", null, h("input", { id: "token", type: "password", "aria-label": "Token", autocomplete: "off", "data-keep": true }), " ", h("button", { type: "submit" }, "open")));
}

function drawPanel(all) {
  const aside = at("panel");
  const task = state.selected === null ? null : store.tasks.get(state.selected);
  aside.hidden = !task;
  document.body.classList.toggle("has-panel", Boolean(task));
  if (task) show(aside, panel.render({ ...all, detail: state.detail?.task?.number === task.number ? state.detail : null }, task));
}

function bar({ now: present }) {
  let waiting = 0, done = 0, failed = 0, cancelled = 0, dropped = 0;
  for (const task of store.tasks.values()) {
    if (task.outcome) {
      if (task.outcome === "success") done += 1;
      else if (hasFailed(task)) failed += 1;
      else if (task.outcome === "aborted") cancelled += 1;
      else if (task.outcome === "rejected") dropped += 1;
    } else if (!isActive(task)) waiting += 1;
  }
  const slots = store.snapshot?.slots.limit;
  return [
    h("div", { class: "brand" }, h("img", { src: "page/icon.svg", alt: "", width: 22, height: 22 }), h("strong", null, "whywait"),
      connection.info?.name ? h("span", { class: "name quiet" }, connection.info.name) : null),
    h("span", { class: `status ${state.status}` }, statusText(present)),
    h("div", { class: "totals" },
      total("running", runningCount(store.running(), slots)), total("waiting", count(waiting)),
      total("succeeded", count(done)), total("failed", count(failed), failed ? "bad" : null),
      cancelled ? total("cancelled", count(cancelled)) : null, dropped ? total("dropped", count(dropped)) : null),
    h("div", { class: "search" }, h("input", {
      id: "search", type: "search", placeholder: "Search  /", "aria-label": "Search tasks, scopes, periodics, causes", autocomplete: "off", spellcheck: "false",
      role: "combobox", "aria-expanded": String(Boolean(state.text)), "aria-controls": "hits", "aria-activedescendant": state.text ? `hit-${state.active}` : null,
    }), h("div", { id: "found" }, search.render(search.find(store, state.text), state.text, state.active))),
    h("div", { class: "buttons" },
      h("button", { type: "button", "data-do": "freeze", "aria-pressed": String(state.frozenNs !== null), title: "freeze what is shown (f)" }, state.frozenNs === null ? "freeze" : "go on"),
      h("button", { type: "button", "data-do": "open", title: "open a saved run (o)" }, "open"),
      h("button", { type: "button", "data-do": "theme", title: "light or dark (t)", "aria-label": "change the theme" }, document.documentElement.dataset.theme === "dark" ? "☀" : "☾"),
      h("button", { type: "button", "data-do": "help", title: "keys (?)", "aria-label": "show the keys" }, "?")),
  ];
}

const total = (text, value, more = "") => h("span", { class: `total ${more ?? ""}`, "data-key": text }, h("b", null, value), ` ${text}`);

function statusText(present) {
  const ran = store.firstNs === null ? "" : ` ${time(present - store.firstNs)}`;
  if (state.frozenNs !== null) return "frozen";
  return { connecting: "connecting", live: `live${ran}`, disconnected: "disconnected", locked: "locked", finished: `finished${ran}`, saved: `saved run${ran}`, file: `saved run${ran}` }[state.status];
}

function tabs() {
  return VIEWS.map(([name, title], index) => h("button", {
    type: "button", "data-view": name, "aria-current": name === state.view ? "page" : null, title: `${title} (${index + 1})`,
  }, title, badge(name)));
}

function badge(name) {
  if (name !== "failures") return null;
  let failed = 0;
  for (const task of store.tasks.values()) if (hasFailed(task) || task.outcome === "rejected") failed += 1;
  return failed ? h("span", { class: "badge" }, count(failed)) : null;
}

function notice() {
  const lines = [];
  if (state.status === "disconnected") lines.push(["warn", "The server does not answer. What you see is the last that was known; trying again every second."]);
  if (state.status === "locked" && store.tasks.size) lines.push(["warn", "The server at this address wants another token: open the address that it has printed. What you see is the last that was known."]);
  if (state.status === "finished") lines.push(["good", "The run is over. This page keeps what it has seen; nothing changes any more."]);
  if (store.skipped) lines.push(["warn", `${counted(store.skipped, "event")} skipped: more came than could be shown.`]);
  if (state.notice) lines.push(["bad", state.notice]);
  return lines.map(([kind, text]) => h("p", { class: `line ${kind}` }, text, kind === "bad" ? h("button", { type: "button", "data-do": "dismiss", "aria-label": "dismiss" }, "✕") : null));
}

// Doing

async function choose(number) {
  const before = state.selected;
  state.selected = number;
  state.failure = null;
  if (before !== number) state.detail = null;
  draw(true);
  if (number !== null && before === null) at("panel").querySelector("h2")?.focus({ preventScroll: true });
  if (number !== null) await refreshDetail();
}

async function refreshDetail() {
  if (state.selected === null || state.status !== "live" || state.frozenNs !== null) return;
  state.detailAt = performance.now();
  try {
    state.detail = await get(`api/tasks/@${state.selected}`);
    for (const row of [state.detail.task, ...state.detail.attempts, ...state.detail.awaits, ...state.detail.awaited_by]) store.addRow(row);
  } catch {
    state.detail = null; // it ended too long ago: what this page has seen of it stays
  }
  draw(true);
}

async function change(what) {
  state.failure = null;
  try {
    await what();
    await connection.refresh();
  } catch (error) {
    state.failure = error.message;
    if (state.selected === null) state.notice = error.message;
  }
  await refreshDetail();
  draw(true);
}

function toView(name) {
  state.view = name;
  history.replaceState(null, "", `#${name}`);
  draw(true);
  window.scrollTo(0, 0);
  at("tabs").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
}

async function openFile(file) {
  if (!file) return;
  try {
    const { events, gates, devices, cut } = parseSaved(await file.text());
    connection.close();
    connection = new Connection(store, () => {});
    connection.info = { name: file.name, control: false };
    store.reset();
    for (const event of events) store.apply(event);
    if (gates) store.setLimits(gates, devices);
    const said = cut ? "The last line of the file was cut off and is left out." : null;
    Object.assign(state, { status: "file", selected: null, detail: null, frozenNs: null, notice: said });
  } catch (error) {
    state.notice = `${file.name} cannot be shown: ${error.message}`;
  }
  draw(true);
}

const DOINGS = {
  freeze: () => {
    state.frozenNs = state.frozenNs === null ? now() : null;
    draw(true);
  },
  theme: () => {
    localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    setTheme();
    draw(true);
  },
  open: () => {
    const input = h("input", { type: "file", accept: ".jsonl,.ndjson,.json" });
    input.addEventListener("change", () => openFile(input.files[0]));
    input.click();
  },
  help: () => toggleHelp(),
  dismiss: () => {
    state.notice = null;
    draw(true);
  },
};

/** What the reader chose, or else what the system says. */
function setTheme() {
  document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? (DARK.matches ? "dark" : "light");
}

function toggleHelp(open = at("overlay").hidden) {
  const overlay = at("overlay");
  overlay.hidden = !open;
  show(overlay, open ? h("div", { class: "help", role: "dialog", "aria-label": "Keys", tabindex: -1 }, h("h2", null, "Keys"),
    h("dl", null, [["1 … 7", "the views"], ["/", "search"], ["j k ↓ ↑", "next, previous task"], ["Enter", "open it"], ["Esc", "close the panel"], ["f", "freeze and go on"], ["t", "light or dark"], ["o", "open a saved run"], ["← → + − 0", "in the timeline: pan, zoom, all"]]
      .flatMap(([keys, text]) => [h("dt", null, keys), h("dd", null, text)])),
    h("button", { type: "button", "data-do": "help" }, "close")) : []);
  overlay.querySelector(".help")?.focus();
}

// Listening

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-do],[data-view],[data-act],[data-verb],[data-periodic],[data-zoom],[data-fold],[data-close],[data-task]");
  if (!target) {
    if (state.text && !event.target.closest(".search")) setSearch("");
    return;
  }
  const { dataset } = target;
  if (dataset.do) DOINGS[dataset.do]();
  else if (dataset.act) change(() => act("POST", `api/tasks/@${dataset.number}/${dataset.act}`));
  else if (dataset.verb) {
    if (dataset.verb !== "dispose" || confirm(`Dispose of scope ${dataset.scope}? Everything inside it ends.`)) change(() => act("POST", `api/scopes/${encodeURIComponent(dataset.scope)}/${dataset.verb}`));
  } else if (dataset.periodic) change(() => act("PUT", `api/periodics/${encodeURIComponent(dataset.periodic)}`, { enabled: dataset.enabled !== "true" }));
  else if (dataset.zoom) {
    timeline.zoom(dataset.zoom);
    draw(true);
  } else if (dataset.fold) {
    graph.toggle(dataset.fold);
    draw(true);
  } else if (dataset.close !== undefined) choose(null);
  else {
    if (dataset.view) toView(dataset.view);
    if (dataset.task) choose(Number(dataset.task));
    if (target.closest(".hits")) setSearch("");
  }
});

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  keepToken(at("token").value.trim().replace(/^.*token=/, ""));
  at("token").value = "";
  state.notice = null;
  connection.open();
  await get("api/info").catch((error) => (state.notice = error.message));
  draw(true);
});

document.addEventListener("choose", (event) => choose(event.detail));

function setSearch(text) {
  state.text = text;
  state.active = 0;
  const box = at("search");
  if (box.value !== text) box.value = text;
  draw(true);
}

document.addEventListener("input", (event) => {
  if (event.target.id === "search") setSearch(event.target.value);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.id === "search") return searchKey(event);
  if (event.target.closest("input, textarea")) return;
  const index = Number(event.key) - 1;
  if (VIEWS[index]) toView(VIEWS[index][0]);
  else if (state.view === "timeline" && timeline.press(event.key)) event.preventDefault();
  else if (event.key === "/") {
    event.preventDefault();
    at("search").focus();
  } else if (event.key === "Escape") at("overlay").hidden ? choose(null) : toggleHelp(false);
  else if (event.key === "?") toggleHelp();
  else if (event.key === "f") DOINGS.freeze();
  else if (event.key === "t") DOINGS.theme();
  else if (event.key === "o") DOINGS.open();
  else if (["j", "ArrowDown"].includes(event.key)) step(event, 1);
  else if (["k", "ArrowUp"].includes(event.key)) step(event, -1);
  else if ((event.key === "Enter" || event.key === " ") && event.target.matches("g[role=button]")) {
    event.preventDefault();
    event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  }
});

function searchKey(event) {
  const hits = at("found").querySelectorAll("[role=option]");
  if (event.key === "Escape") {
    setSearch("");
    event.target.blur();
  } else if (event.key === "Enter") hits[state.active]?.click();
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    state.active = Math.max(0, Math.min(hits.length - 1, state.active + (event.key === "ArrowDown" ? 1 : -1)));
    draw(true);
  }
}

function step(event, by) {
  const items = [...at("main").querySelectorAll(".item")];
  if (!items.length) return;
  event.preventDefault();
  const index = items.indexOf(document.activeElement);
  const next = items[index === -1 ? 0 : Math.max(0, Math.min(items.length - 1, index + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  openFile(event.dataTransfer.files[0]);
});

// Beginning

takeToken();
setTheme();
if (VIEWS.some(([name]) => `#${name}` === location.hash)) state.view = location.hash.slice(1);
DARK.addEventListener("change", setTheme);
draw(true);
connection.open();
setInterval(() => {
  if (!document.hidden) draw();
}, RENDER_MS);
setInterval(() => {
  if (document.hidden || state.status !== "live" || state.frozenNs !== null) return;
  if (performance.now() - state.detailAt > DETAIL_MS - 50) refreshDetail();
}, DETAIL_MS);
window.whywait = { store, state, choose }; // for people who look with the browser's own tools
