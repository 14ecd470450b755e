// A saved run: events as JSON Lines, the first line with the limits, or a JSON document with a list of events.
// observe/event_file.py reads the same files for the server; here it is checked what the page relies on. What cannot have
// happened (a retry of a later task, a circle of dependencies) does no harm: the store and the graph pass over it.

const RECORD = '{"whywait record"';
const MAGIC = "whywait events";
const LONGEST = 1000; // characters of a name

/** Return {events, gates, devices, cut} of the text of a file; throws an Error that says what is wrong with it.
 *
 * `gates` are the limits, the slots first, or null if the file does not tell; `devices` their units; `cut`: its last line was cut off. */
export function parseSaved(text) {
  const trimmed = text.trim();
  if (!trimmed) throw new Error("the file is empty");
  if (trimmed.startsWith(RECORD)) throw new Error("it is a record, from which the events have to be made again: `whywait serve FILE` does so and opens it here");
  const { rows, cut } = trimmed.startsWith("[") || isOneDocument(trimmed) ? { rows: listIn(JSON.parse(trimmed)), cut: false } : parseLines(trimmed);
  const events = checked(rows);
  if (!events.length) throw new Error("the file holds no events: expected what `whywait run --events FILE` writes");
  return { events, gates: gatesOf(rows[0], events), devices: unitsOf(rows[0], events), cut };
}

function listIn(whole) {
  if (whole?.seq !== undefined) return [whole];
  const rows = Array.isArray(whole) ? whole : whole?.events;
  if (!Array.isArray(rows)) throw new Error("the file holds no list of events");
  return rows;
}

function isOneDocument(text) {
  const end = text.indexOf("\n");
  if (end === -1) return true;
  try {
    JSON.parse(text.slice(0, end));
    return false;
  } catch {
    return true;
  }
}

function parseLines(text) {
  const lines = text.split("\n");
  let cut = false;
  const rows = lines.map((line, index) => {
    try {
      return line.trim() ? JSON.parse(line) : null;
    } catch {
      if (index < lines.length - 1 || !index) throw new Error(`line ${index + 1} is not JSON`);
      cut = true; // the program was killed while it wrote
      return null;
    }
  });
  return { rows, cut };
}

/** Return those rows that are events; throws for one that cannot have come after those before it. */
function checked(rows) {
  const known = { seq: 0, scopes: new Set([""]) };
  const events = rows.filter((row, index) => {
    if (typeof row?.seq !== "number" || typeof row.kind !== "string") return false; // the first line, or one that tells of skipped events
    const wrong = problem(row, known);
    if (wrong) throw new Error(`line ${index + 1}: ${wrong}`);
    known.seq = row.seq;
    if (row.kind === "SCOPE_CREATED") known.scopes.add(row.scope);
    return true;
  });
  return events;
}

const othersIn = (details) => [...(details.after ?? []), ...(details.after_ended ?? [])];

function problem(row, known) {
  const details = row.details ?? {};
  if (!(row.seq > known.seq)) return `seq ${row.seq} comes after ${known.seq}`;
  if (!Number.isFinite(row.time_ns)) return "its time_ns is no number";
  if (typeof row.scope !== "string") return "its scope is no text";
  if (typeof details !== "object" || Array.isArray(details)) return "its details are no object";
  if (row.number !== undefined && !Number.isInteger(row.number)) return "its number is no whole number";
  for (const name of [row.scope, row.name ?? "", details.root ?? "", details.parent ?? ""]) {
    if (typeof name !== "string") return "a name is no text";
    if (name.length > LONGEST) return `a name is longer than ${LONGEST.toLocaleString("en-GB")} characters`;
  }
  if (row.kind === "SCOPE_CREATED" && !known.scopes.has(details.parent ?? "")) return `the parent of scope ${row.scope} was not there yet`;
  for (const key of ["after", "after_ended"]) if (details[key] !== undefined && !Array.isArray(details[key])) return `its ${key} is no list`;
  if (!othersIn(details).every(Number.isInteger)) return "it awaits what is no number of a task";
  return null;
}

/** The limits that the first line tells, with what has changed since. */
function gatesOf(header, events) {
  if (header?.[MAGIC] === undefined) return null;
  const gate = (name, limit, soft) => ({ name, limit: limit ?? null, free: limit ?? null, soft });
  const gates = [gate("slot", header.slots, false), ...Object.entries(header.hard ?? {}).map(([name, limit]) => gate(name, limit, false)),
    ...Object.entries(header.soft ?? {}).map(([name, limit]) => gate(name, limit, true))];
  for (const event of events) {
    const changed = event.kind === "LIMIT_CHANGED" && gates.find(({ name }) => name === event.name);
    if (changed) changed.limit = changed.free = event.details?.limit ?? null;
  }
  return gates;
}

/** The units of devices that the first line tells, with those that came later; one that has gone says so. */
function unitsOf(header, events) {
  const kinds = new Map(Object.entries(header?.devices ?? {}).map(([kind, units]) => [kind, { units: { ...units }, present: { ...units } }]));
  for (const event of events) {
    const known = event.kind === "LIMIT_CHANGED" && event.details?.units && kinds.get(event.name);
    if (known) Object.assign(known, { units: { ...known.units, ...event.details.units }, present: event.details.units });
  }
  return [...kinds].flatMap(([kind, { units, present }]) =>
    Object.entries(units).sort(byUnit).map(([name, size]) => ({ kind, name, size, present: name in present })));
}

const byUnit = ([a], [b]) => a.localeCompare(b, "en", { numeric: true });
