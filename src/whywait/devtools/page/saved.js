// A saved run: events as JSON Lines, or a JSON document with a list of events.

const RECORD = '{"whywait record"';

/** Return the events in the text of a file; throws an Error that says what is wrong with it. */
export function parseEvents(text) {
  const trimmed = text.trimStart();
  if (!trimmed) throw new Error("the file is empty");
  if (trimmed.startsWith(RECORD)) throw new Error("it is a record, from which the events have to be made again: `whywait serve FILE` does so and opens it here");
  const whole = trimmed.startsWith("[") || isOneDocument(trimmed) ? JSON.parse(trimmed) : null;
  const rows = whole === null ? parseLines(trimmed) : Array.isArray(whole) ? whole : whole.events;
  if (!Array.isArray(rows)) throw new Error("the file holds no list of events");
  const events = rows.filter((row) => typeof row?.seq === "number" && typeof row.kind === "string");
  if (!events.length) throw new Error("the file holds no events: expected what `whywait run --events FILE` writes");
  return events;
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
  return text.split("\n").flatMap((line, index) => {
    if (!line.trim()) return [];
    try {
      return [JSON.parse(line)];
    } catch {
      throw new Error(`line ${index + 1} is not JSON`);
    }
  });
}
