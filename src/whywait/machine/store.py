"""The store: what has to survive the service, in SQLite; written by one thread, read when the service starts.

How a change gets from the kernel to the disk, and what each step closes:

1. Changes are put into ``_queue`` in the order in which the kernel decided them (under the authority's lock), so that
   no later change is on the disk without an earlier one.
2. The writer takes all that is queued, writes it in one transaction, and the commit synchronises it (WAL, FULL): many
   clients at once share one wait for the disk. A thread that waits for its ticket writes by itself when it is its
   turn: that saves two changes of threads for each start of a command.
3. Only after the commit the job in memory gets its new fields and the ticket of the change is released. An answer, the
   start of a command, the news of an end wait for their ticket: what was told is kept.
4. A commit that fails (a full disk) changes nothing. A new job of that transaction is refused. Everything else has
   happened already, so it stays first in the queue and is tried again until the disk takes it; meanwhile nothing is
   told and, since a start waits for its ticket, nothing starts.

Which lock guards what:

================  ===================================================================================================
``Store._turn``   the connection, and which thread writes; ``_lock`` and ``Core.lock`` may be taken under it, it is
                  never taken under them
``Store._lock``   the queue and whether it takes more; may be taken under ``Core.lock``
``Ticket._lock``  whether a change is known to be kept, and what is told of that; nothing is taken under it
================  ===================================================================================================

What is read without: whether a ticket is done, and whether anything is queued, only to write sooner; the failure of a
ticket, behind its latch; the fields of a job, single values that the thread in its turn sets, the state last.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import quote

from whywait.errors import ConfigError, MachineError, printable, shortened
from whywait.machine.rows import COLUMNS, IN_JSON, environment_of, job_fields, scope_of
from whywait.support.locks import SafeLock
from whywait.support.logger import log

APPLICATION_ID: Final = 0x77687977  # "whyw"
AGAIN_AFTER_S: Final = 0.5
_ENDING: Final = "the service is ending"

Change = Callable[[sqlite3.Connection], object]
T = TypeVar("T")

# Each entry brings a store from one version to the next; `PRAGMA user_version` says how many have been done.
MIGRATIONS: Final = (
    """
    CREATE TABLE environments (id TEXT PRIMARY KEY, variables TEXT NOT NULL);
    CREATE TABLE scopes (key TEXT PRIMARY KEY, options TEXT NOT NULL);
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        scope TEXT NOT NULL,
        name TEXT NOT NULL,
        command TEXT NOT NULL,
        directory TEXT NOT NULL,
        environment TEXT NOT NULL REFERENCES environments,
        options TEXT NOT NULL,
        added REAL NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending',
        attempt INTEGER NOT NULL DEFAULT 0,
        started REAL,
        ended REAL,
        outcome TEXT,
        cause TEXT,
        exit_code INTEGER,
        facts TEXT NOT NULL DEFAULT '{}',
        UNIQUE (scope, name)
    );
    """,
)


@dataclass(slots=True, eq=False)
class Job:
    """One job as it is kept: what was asked for, and how far it has come.

    ``state`` is ``pending``, ``paused`` (while it was pending), ``running`` or ``ended``.
    """

    number: int
    scope: str
    name: str
    command: list[str]
    directory: str
    environment: str  # the key of it in the store
    options: dict[str, Any]
    added: float  # seconds since 1970, like all times here
    state: str = "pending"
    attempt: int = 0
    started: float | None = None
    ended: float | None = None
    outcome: str | None = None
    cause: str | None = None
    exit_code: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # what else is known of its end: usage, devices, waits

    @property
    def id(self) -> str:
        """What users call it: its number as text, or the name that it was given."""
        return self.name

    @property
    def full_id(self) -> str:
        """Its scope and its name, which no other job has."""
        return f"{self.scope}/{self.name}"


class Ticket:
    """Says when a change is on the disk; ``failure`` is set if it never will be."""

    __slots__ = ("_callbacks", "_is_done", "_latch", "_store", "change", "failure", "is_new", "then")
    _lock: ClassVar = SafeLock()  # of all tickets: it is held for a moment only

    def __init__(self, store: Store, change: Change, then: Callable[[], object] | None, *, is_new: bool) -> None:
        """Wait for the writer; ``then`` is called first when the change is on the disk."""
        self._store = store
        self.change = change
        self.then = then
        self.is_new = is_new  # it can be refused; everything else has happened already
        self.failure: str | None = None
        self._is_done = False
        self._latch = threading.Lock()  # open when it is known: quicker than an Event
        self._latch.acquire()
        self._callbacks: list[Callable[[Ticket], object]] = []

    def wait(self) -> None:
        """Block until the change is on the disk; raise if it never will be."""
        if not self._is_done:
            self._store.write_queued()
        with self._latch:
            pass
        self.check()

    def check(self) -> None:
        """Raise if the change could not be written."""
        if self.failure is not None:
            raise MachineError(self.failure)

    def when_done(self, fn: Callable[[Ticket], object]) -> None:
        """Call ``fn`` on the thread that writes when it is known, or at once if it is."""
        with self._lock:
            if not self._is_done:
                self._callbacks.append(fn)
                return
        fn(self)

    def release(self, failure: str | None = None) -> None:
        """Let those that wait go on."""
        if failure is None and self.then is not None:
            self.then()
        with self._lock:
            self.failure = failure
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
        self._latch.release()
        for fn in callbacks:
            fn(self)


class Store:
    """The jobs of one home, on the disk."""

    def __init__(self, path: str) -> None:
        """Open the store, make it or bring it up to date; raise if it is broken or newer than this program."""
        self._path = path
        self._queue: deque[Ticket] = deque()
        self._lock = SafeLock()  # taken itself, not the condition: see locks.py
        self._news = threading.Condition(self._lock)
        self._turn = SafeLock()  # of the thread that writes
        self._closing = False
        self._connection = self._open()
        self._thread = threading.Thread(target=self._write, name="whywait-store", daemon=True)
        self._thread.start()

    # Reading, before anything is written

    def jobs(self) -> list[Job]:
        """Return all jobs in the order in which they were accepted."""
        rows = self._read(f"SELECT {', '.join(COLUMNS)} FROM jobs ORDER BY number", job_fields)  # noqa: S608 - ours
        return [Job(**fields) for fields in rows]

    def last_number(self) -> int:
        """Return the highest number that a job was ever given."""
        rows = self._read("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'", lambda row: int(row[0]))
        return max(rows, default=0)

    def environments(self) -> dict[str, dict[str, str]]:
        """Return the environments of the jobs by their keys."""
        return dict(self._read("SELECT id, variables FROM environments", lambda row: environment_of(*row)))

    def scopes(self) -> dict[str, dict[str, Any]]:
        """Return what scopes were opened with, by their keys."""
        return dict(self._read("SELECT key, options FROM scopes", lambda row: scope_of(*row)))

    def environment(self, key: str) -> dict[str, str]:
        """Return one environment; at any time."""
        with closing(sqlite3.connect(f"file:{quote(self._path)}?mode=ro", uri=True)) as reader:
            (text,) = reader.execute("SELECT variables FROM environments WHERE id = ?", (key,)).fetchone()
        found: dict[str, str] = json.loads(text)
        return found

    def broken(self, what: object) -> MachineError:
        """Return the error of a store that holds what no service has written."""
        return MachineError(
            f"{self._path} is no store of jobs, or is broken ({printable(shortened(str(what)))}); "
            "move it away to begin with an empty one"
        )

    def _read(self, query: str, made: Callable[[tuple[Any, ...]], T]) -> list[T]:
        """Return what is made of each row; raise if one cannot be read."""
        try:
            return [made(row) for row in self._connection.execute(query)]
        except (sqlite3.Error, ValueError, TypeError, ConfigError) as error:
            raise self.broken(error) from None

    # Changes

    def accept(self, job: Job, environment: Mapping[str, str] | None) -> Ticket:
        """Keep a new job, with its environment if that is a new one; refused if the disk does not take it."""
        values = [_as_kept(name, getattr(job, name)) for name in COLUMNS]
        sql = f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - ours
        text = None if environment is None else json.dumps(environment, sort_keys=True)

        def change(connection: sqlite3.Connection) -> None:
            if text is not None:
                connection.execute(
                    "INSERT OR IGNORE INTO environments (id, variables) VALUES (?, ?)", (job.environment, text)
                )
            connection.execute(sql, values)

        return self._put(change, is_new=True)

    def keep_scope(self, key: str, options: Mapping[str, Any]) -> Ticket:
        """Keep what a scope was opened with."""
        sql = "INSERT OR REPLACE INTO scopes (key, options) VALUES (?, ?)"
        return self._put(_statement(sql, [key, json.dumps(options)]))

    def update(self, job: Job, *, is_awaited: bool = False, **fields: Any) -> Ticket:  # noqa: ANN401 - those of a job
        """Give some fields of a job new values, on the disk and then in memory.

        ``is_awaited``: a thread is about to wait for this ticket, or for one that is put right behind it.
        """
        names = ", ".join(f"{name} = ?" for name in fields)
        values = [*(_as_kept(name, value) for name, value in fields.items()), job.number]

        def then() -> None:
            for name in sorted(fields, key="state".__eq__):  # the state last: what belongs to it is there then
                setattr(job, name, fields[name])

        change = _statement(f"UPDATE jobs SET {names} WHERE number = ?", values)  # noqa: S608 - ours
        return self._put(change, then, is_awaited=is_awaited)

    def forget(self, numbers: Iterable[int], then: Callable[[], object]) -> Ticket:
        """Keep some jobs no longer, nor environments that no other job has; call ``then`` when that is on the disk."""
        wanted = [(number,) for number in numbers]

        def change(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM jobs WHERE number = ?", wanted)
            connection.execute("DELETE FROM environments WHERE id NOT IN (SELECT environment FROM jobs)")
            connection.execute("DELETE FROM scopes WHERE key NOT IN (SELECT scope FROM jobs)")

        return self._put(change, then)

    def erase(self) -> None:
        """Leave nothing of what was forgotten in the journal, as far as the disk lets it."""
        with self._turn, suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def together(self) -> AbstractContextManager[object]:
        """Return a block whose changes are written in one transaction."""
        return self._lock  # the writer cannot look into the queue meanwhile

    def close(self) -> None:
        """Write what is queued, unless the disk does not take it, and close the file."""
        with self._lock:
            self._closing = True
            self._news.notify_all()
        self._thread.join()
        with self._turn:  # a thread that waits for its change may be writing
            self._connection.close()
            lost, self._queue = self._queue, deque()
        for ticket in lost:
            ticket.release(_ENDING)

    # The writer

    def _put(
        self,
        change: Change,
        then: Callable[[], object] | None = None,
        *,
        is_new: bool = False,
        is_awaited: bool = False,
    ) -> Ticket:
        """Have a change written after all that were put before."""
        ticket = Ticket(self, change, then, is_new=is_new)
        with self._lock:
            if not self._closing:
                self._queue.append(ticket)
                if not is_awaited:
                    self._news.notify_all()  # all: see the clock of the runtime
                return ticket
        ticket.release(_ENDING)
        return ticket

    def _write(self) -> None:
        while True:
            with self._lock:
                self._news.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
            with self._turn:
                failure = self._write_batch()
            if failure is not None and self._gives_up(failure):
                return

    def write_queued(self) -> None:
        """Write what is queued, when no other thread writes."""
        with self._turn:
            if self._queue:
                self._write_batch()

    def _write_batch(self) -> str | None:
        """Write what is queued in one transaction; return what went wrong. In the turn of this thread."""
        with self._lock:
            batch = list(self._queue)
            self._queue.clear()
        failure = self._commit(batch) if batch else None
        if failure is not None:
            log.error("%s", failure)
            with self._lock:  # what is new is refused, the rest is kept for another try
                self._queue.extendleft(reversed(tuple(ticket for ticket in batch if not ticket.is_new)))
                self._news.notify_all()
        for ticket in batch:
            if failure is None or ticket.is_new:
                ticket.release(failure)
        return failure

    def _gives_up(self, failure: str) -> bool:
        """Wait before another try; return whether there is none because the service ends."""
        with self._lock:
            if self._queue:
                self._news.wait_for(lambda: self._closing, AGAIN_AFTER_S)
            if not self._closing:
                return False
            lost, self._queue = self._queue, deque()
        for ticket in lost:
            ticket.release(failure)
        return True

    def _commit(self, batch: Iterable[Ticket]) -> str | None:
        """Write changes in one transaction; return what went wrong."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for ticket in batch:
                ticket.change(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            return f"{self._path} cannot be written: {error}"
        return None

    # Opening

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # before SQLite makes it for all to read
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute("PRAGMA journal_mode = WAL")
                cursor.execute("PRAGMA synchronous = FULL")
                cursor.execute("PRAGMA secure_delete = ON")  # environments hold secrets
                self._bring_up_to_date(cursor)
            _sync_folder(self._path)
        except (sqlite3.OperationalError, OSError) as error:
            connection.close()
            raise MachineError(
                f"{self._path} cannot be opened ({error}): is the disk full, or the file locked?"
            ) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: no text in what SQLite quotes
            connection.close()
            raise self.broken(error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _bring_up_to_date(self, cursor: sqlite3.Cursor) -> None:
        (version,) = cursor.execute("PRAGMA user_version").fetchone()
        (application,) = cursor.execute("PRAGMA application_id").fetchone()
        (tables,) = cursor.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (version or tables) and application != APPLICATION_ID:
            raise sqlite3.DatabaseError("it belongs to another program")
        if version > len(MIGRATIONS):
            raise MachineError(
                f"{self._path} was written by a newer whywait (format {version}; this one knows {len(MIGRATIONS)}): "
                "install that version, or choose another folder by WHYWAIT_HOME"
            )
        for number, migration in enumerate(MIGRATIONS[version:], version + 1):
            cursor.executescript(
                f"BEGIN IMMEDIATE; {migration}; PRAGMA application_id = {APPLICATION_ID}; "
                f"PRAGMA user_version = {number}; COMMIT;"
            )


def _sync_folder(path: str) -> None:
    """Have the system keep which files there are: a journal that comes back after a loss of power undoes all."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _statement(sql: str, values: list[Any]) -> Change:
    return lambda connection: connection.execute(sql, values)


def _as_kept(name: str, value: Any) -> Any:  # noqa: ANN401 - of any field
    """Return a value of a field as the file has it; JSON keeps bytes that are no text, in names of files."""
    return json.dumps(value) if name in IN_JSON else value
