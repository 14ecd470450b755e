// Talking to the server: reads, the stream of events, and the few things that change the run. All of it takes the token.
//
// The token is kept in this tab (sessionStorage) and sent in a header. A cookie would go to every other port of this
// machine too, and an address ends up in logs and histories; for the same reason the stream is read by fetch, since an
// EventSource can send no header. Paths are relative: the page may be mounted anywhere in the app of a host.

const STREAM_S = 5; // a stream ends after so long and is begun again: a server that is to end waits for it no longer
const TOKEN = `whywait-token ${location.pathname}`;

/** The server wants a token that this page does not have. */
export class NeedsToken extends Error {}

/** Take the token out of the address, where it must not stay, and keep it for this tab. */
export function takeToken() {
  const match = /[#?&]token=([\w-]+)/.exec(location.search + location.hash);
  if (!match) return;
  keepToken(match[1]);
  history.replaceState(null, "", location.pathname);
}

/** Keep a token for this tab. */
export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

/** Ask the server; an answer that is an error becomes an Error with the server's words. */
async function ask(path, options) {
  const headers = { Accept: "application/json", ...options?.headers };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const data = await answer.json().catch(() => ({}));
  const text = data.error ?? `the server answered ${answer.status}`;
  throw answer.status === 401 ? new NeedsToken(text) : new Error(text);
}

/** Read JSON. */
export const get = async (path) => (await ask(path)).json();

/** Change something. */
export async function act(method, path, body) {
  if (body === undefined) return (await ask(path, { method })).json();
  return (await ask(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
}

/** Read a stream of server-sent events: yields [kind, data] for each. */
async function* messages(path, signal) {
  const answer = await ask(path, { headers: { Accept: "text/event-stream" }, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s)));
      if (fields.data) yield [fields.event ?? "message", JSON.parse(fields.data)];
    }
  }
}

/** Read all tasks page by page, then follow the events. Calls back with what happens; reconnects by itself. */
export class Connection {
  #stopped = new AbortController();

  constructor(store, changed) {
    this.store = store;
    this.changed = changed; // called with "connecting", "live", "disconnected", "locked", "finished", "saved"
    this.info = null;
    this.clock = { server_ns: 0, local_ms: 0 };
  }

  async open() {
    if (this.#isStopped) return;
    try {
      const info = await get("api/info");
      this.clock = { server_ns: info.now_ns, local_ms: performance.now() };
      if (this.info && this.info.run !== info.run) this.store.reset();
      this.info = info;
      await (info.mode === "saved" ? this.#readEvents() : this.#readTasks());
      if (this.#isStopped) return;
      if (info.mode === "saved") {
        const { slots, budget, devices } = await get("api/snapshot");
        if ("slots" in info.settings) this.store.setLimits([slots, ...budget], devices);
        this.changed("saved");
      } else await this.#follow();
    } catch (error) {
      if (this.#isStopped) return;
      if (error instanceof NeedsToken) return this.changed("locked");
      this.changed("disconnected");
      setTimeout(() => this.open(), 1000);
    }
  }

  get #isStopped() {
    return this.#stopped.signal.aborted;
  }

  close() {
    this.#stopped.abort();
  }

  async #readTasks() {
    let after = null;
    let seq = null;
    do {
      const page = await get(`api/tasks?limit=1000${after === null ? "" : `&after=${after}`}`);
      seq ??= page.seq;
      for (const row of page.tasks) this.store.addRow(row);
      after = page.next;
    } while (after !== null);
    this.store.seq = Math.max(this.store.seq, 0);
    this.since = Math.min(seq, this.store.events.at(-1)?.seq ?? seq);
    await this.refresh();
    if (this.store.events.length) return;
    await this.#readEvents(this.info.finished ? 0 : Math.max(0, seq - 5000), seq); // notes, lanes, scopes
  }

  async #readEvents(since = 0, until = Infinity) {
    for (;;) {
      const page = await get(`api/events?limit=1000&since=${since}`);
      for (const event of page.events) this.store.apply(event);
      if (!page.events.length || page.next >= until || page.next === since) return;
      since = page.next;
    }
  }

  async refresh() {
    if (this.info?.mode === "live") this.store.setSnapshot(await get("api/snapshot"));
  }

  async #follow() {
    const heard = {
      message: (event) => this.store.apply(event),
      snapshot: (snapshot) => this.store.setSnapshot(snapshot),
      skipped: ({ skipped, to }) => {
        this.store.skipped += skipped;
        this.store.seq = Math.max(this.store.seq, to);
        this.#resync();
      },
    };
    for (;;) {
      const path = `api/events?snapshots=yes&seconds=${STREAM_S}&since=${this.store.seq || this.since}`;
      let ended = "disconnected";
      for await (const [kind, data] of messages(path, this.#stopped.signal)) {
        heard[kind]?.(data);
        if (kind === "finished" || kind === "again") ended = kind;
        else this.changed("live");
      }
      if (ended === "finished") return this.changed("finished");
      if (ended !== "again") throw new Error("the stream has broken off");
    }
  }

  async #resync() {
    // What was skipped may have ended tasks that we believe alive: ask again for those.
    const page = await get("api/tasks?limit=1000&state=living").catch(() => null);
    if (!page) return;
    const living = new Set(page.tasks.map((row) => row.number));
    for (const row of page.tasks) this.store.addRow(row);
    if (page.next !== null) return; // too many to tell which are missing
    for (const task of this.store.tasks.values()) {
      if (!task.outcome && !living.has(task.number) && task.seq <= page.seq) {
        this.store.addRow({ ...task, state: "DISPOSED", outcome: "unseen", seq: page.seq });
      }
    }
  }
}
