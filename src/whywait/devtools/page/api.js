// Talking to the server: reads, the stream of events, and the few things that change the run.

const TOKEN = "whywait-token";

/** Take the token out of the address and keep it for this tab: it must not stay in the history. */
export function takeToken() {
  const match = location.hash.match(/^#token=([\w-]+)/);
  if (match) {
    sessionStorage.setItem(TOKEN, match[1]);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(TOKEN);
}

/** Read JSON; an answer that is an error becomes an Error with the server's words. */
export async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(data.error ?? `the server answered ${answer.status}`);
  return data;
}

/** Change something. */
export async function act(method, path, body) {
  const headers = { Accept: "application/json", Authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(data.error ?? `the server answered ${answer.status}`);
  return data;
}

/** Read all tasks page by page, then follow the events. Calls back with what happens; reconnects by itself. */
export class Connection {
  #source = null;
  #stopped = false;

  constructor(store, changed) {
    this.store = store;
    this.changed = changed; // called with "connecting", "live", "disconnected", "finished", "saved"
    this.info = null;
    this.clock = { server_ns: 0, local_ms: 0 };
  }

  async open() {
    if (this.#stopped) return;
    try {
      const info = await get("/api/info");
      this.clock = { server_ns: info.now_ns, local_ms: performance.now() };
      if (this.info && this.info.run !== info.run) this.store.reset();
      this.info = info;
      await (info.mode === "saved" ? this.#readEvents() : this.#readTasks());
      if (this.#stopped) return;
      if (info.mode === "saved") {
        this.#takeLimits(await get("/api/snapshot"));
        this.changed("saved");
      } else this.#follow();
    } catch (error) {
      if (this.#stopped) return;
      this.changed("disconnected", error);
      setTimeout(() => this.open(), 1000);
    }
  }

  /** Of a saved run the picture tells the limits, if they are known, and nothing else. */
  #takeLimits(snapshot) {
    if (snapshot.slots.limit !== null || snapshot.budget.length) this.store.setSnapshot(snapshot);
  }

  close() {
    this.#stopped = true;
    this.#source?.close();
  }

  async #readTasks() {
    let after = null;
    let seq = null;
    do {
      const page = await get(`/api/tasks?limit=1000${after === null ? "" : `&after=${after}`}`);
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
      const page = await get(`/api/events?limit=1000&since=${since}`);
      for (const event of page.events) this.store.apply(event);
      if (!page.events.length || page.next >= until || page.next === since) return;
      since = page.next;
    }
  }

  async refresh() {
    if (this.info?.mode === "live") this.store.setSnapshot(await get("/api/snapshot"));
  }

  #follow() {
    const source = new EventSource(`/api/events?snapshots=yes&since=${this.store.seq || this.since}`);
    this.#source = source;
    source.onopen = () => this.changed("live");
    source.onmessage = (message) => this.store.apply(JSON.parse(message.data));
    source.addEventListener("snapshot", (message) => this.store.setSnapshot(JSON.parse(message.data)));
    source.addEventListener("skipped", (message) => {
      const { skipped, to } = JSON.parse(message.data);
      this.store.skipped += skipped;
      this.store.seq = Math.max(this.store.seq, to);
      this.#resync();
    });
    source.addEventListener("finished", async () => {
      source.close();
      this.changed("finished");
    });
    source.onerror = () => {
      source.close();
      if (this.#stopped) return;
      this.changed("disconnected");
      setTimeout(() => this.open(), 1000);
    };
  }

  async #resync() {
    // What was skipped may have ended tasks that we believe alive: ask again for those.
    const page = await get("/api/tasks?limit=1000&state=living").catch(() => null);
    if (!page) return;
    const living = new Set(page.tasks.map((row) => row.number));
    for (const row of page.tasks) this.store.addRow(row);
    if (page.next !== null) return; // too many to tell who is missing
    for (const task of this.store.tasks.values()) {
      if (!task.outcome && !living.has(task.number) && task.seq <= page.seq) {
        this.store.addRow({ ...task, state: "DISPOSED", outcome: "UNSEEN", seq: page.seq });
      }
    }
  }
}
