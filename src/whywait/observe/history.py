"""History: what finished runs teach, by the names of tasks, in a file of the user's (SQLite).

1. :meth:`History.add` puts what came of an attempt into memory. That is cheap, so it may be done under a lock.
2. A thread writes it half a second later, all that has come meanwhile in one transaction, and ends. Each transaction
   has a connection of its own: a fork, or a file that is moved away, finds none open.
3. Any number of programs may share a file: it is in WAL mode, and a writer waits for others. A program that is killed
   loses what it has not written, and nothing else.
4. The file is bounded: so many attempts of each name, so many in all, none that is too old.
5. A file that cannot be written costs the history only; the log is told once. A broken one is set aside and begun anew.

``History._lock`` guards what waits to be written: it may be taken under any lock, and nothing is taken under it.
``History._file_lock`` guards the use of the file, and whether the log was told; ``_lock`` is taken under it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from statistics import median
from threading import RLock
from typing import Any, Final, NamedTuple, TypeVar

from whywait.errors import ConfigError
from whywait.kernel.ids import family_of
from whywait.kernel.state import Outcome
from whywait.support.later import Later
from whywait.support.logger import Log, log
from whywait.support.units import NS_PER_S

KEPT_OF_A_NAME: Final = 50  # attempts that succeeded, and as many others
KEPT_IN_ALL: Final = 100_000
KEPT_FOR_S: Final = 365 * 86_400.0
LAST: Final = 10  # successes that a lesson is drawn from
WRITE_S: Final = 0.5
BUSY_S: Final = 5.0  # how long a writer waits for others
_AGAIN_S: Final = 0.02
APPLICATION_ID: Final = 0x77687968  # "whyh"
VERSION: Final = 1
_NAMES_WAITING: Final = 10_000  # of which something is in memory; beyond, the first is dropped
_SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")  # of files that may be set aside when they are no history
_BROKEN: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNREADABLE: Final = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter: no text in what SQLite quotes
_PASSING: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SCHEMA: Final = f"""
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        family TEXT NOT NULL,
        ended REAL NOT NULL,
        ran_ns INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        cause TEXT,
        exit_code INTEGER,
        peak_ram INTEGER,
        cpu_ms INTEGER
    );
    CREATE INDEX runs_by_name ON runs (name, id);
    CREATE INDEX runs_by_family ON runs (family, id);
    CREATE INDEX runs_by_end ON runs (ended);
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {VERSION};
"""

T = TypeVar("T")
K = TypeVar("K")


# Of a file that was damaged, or written by another program, rows that no history has written are passed over.
_SOUND: Final = (
    "typeof(family) = 'text' AND typeof(ended) = 'real' AND abs(ended) < 1e12 AND typeof(ran_ns) = 'integer' "
    "AND ran_ns >= 0 AND (peak_ram IS NULL OR typeof(peak_ram) = 'integer' AND peak_ram BETWEEN 0 AND (1 << 60)) "
    f"AND outcome IN {tuple(map(str, Outcome))}"
)


class Finished(NamedTuple):
    """What came of one attempt at a task."""

    name: str  # what the task is called
    ended: float  # seconds since 1970
    ran_ns: int
    outcome: str
    cause: str | None = None
    exit_code: int | None = None
    peak_ram: int | None = None  # bytes; None: not measured
    cpu_ms: int | None = None


class Lesson(NamedTuple):
    """What the history says of one name, or of names that differ in a number or behind a colon."""

    name: str
    runs: int  # that are kept
    outcomes: dict[str, int]
    median_s: float | None  # of the last ten successes; None: there is none
    peak_ram: int | None  # the highest of the last ten successes that were measured
    last_ended: float  # seconds since 1970


class History:
    """What finished runs teach, in a file that any number of programs may share."""

    def __init__(self, path: str | os.PathLike[str], log: Log = log) -> None:
        """Open the file, or make it; ConfigError if it belongs to another program, or to a newer whywait."""
        self.path = Path(path).expanduser().absolute()
        self._waiting: dict[tuple[str, bool], deque[Finished]] = {}  # to be written, by name and success
        self._kin: dict[str, deque[Finished]] = {}  # the successes among them, by family
        self._lock = RLock()  # of what waits
        self._file_lock = RLock()  # one thread at a time uses the file
        self._later = Later(self.write, "whywait-history")
        self._is_told = False
        self._log = log.child("files")
        try:
            self._use(lambda connection: connection.execute("SELECT 1 FROM runs LIMIT 1"))
        except (OSError, sqlite3.Error) as error:
            if not _is_passing(error):
                raise ConfigError(f"history {self.path} cannot be opened: {_told(error)}") from None
            self._say(error)

    # Adding

    def add(self, finished: Finished) -> None:
        """Keep what came of an attempt; it is in the file half a second later."""
        name, is_success = _text(finished.name), finished.outcome == Outcome.SUCCESS
        row = finished if name is finished.name else finished._replace(name=name)
        with self._lock:
            _append(self._waiting, (name, is_success), row)
            if is_success:
                _append(self._kin, family_of(name), row)
        self._later.ask(WRITE_S)

    def write(self) -> None:
        """Write what waits now; what goes wrong is said once."""
        with self._file_lock:
            with self._lock:
                waiting, self._waiting, self._kin = self._waiting, {}, {}
            if waiting:
                try:
                    self._use(lambda connection: _keep(connection, waiting))
                except (OSError, sqlite3.Error, ConfigError) as error:
                    self._say(error)

    def close(self) -> None:
        """Write what waits; idempotent."""
        self._later.close()
        self.write()

    # Asking

    def learned_ram(self, name: str) -> int | None:
        """Return what a task should ask for: the highest peak of the last ten measured successes and a tenth."""
        return self.learned_rams([name]).get(name)

    def learned_rams(self, names: Iterable[str]) -> dict[str, int]:
        """Return the same for many names at once, for those of which something is known."""
        peaks = {name: max(found) for name, found in self._last(names, "peak_ram").items()}
        return {name: peak + -(-peak // 10) for name, peak in peaks.items()}

    def median_s(self, name: str) -> float | None:
        """Return how long a task takes: the median of its last ten successes; None if it has none."""
        ran = self._last([name], "ran_ns").get(name)
        return None if ran is None else median(ran) / NS_PER_S

    def lessons(self) -> list[Lesson]:
        """Return what is known of each family of names, the one that ended last first."""
        self.write()
        query = f"SELECT family, outcome, ran_ns, peak_ram, ended FROM runs WHERE {_SOUND} ORDER BY id DESC"  # noqa: S608 - ours
        nothing: list[tuple[Any, ...]] = []
        rows: dict[str, list[Any]] = {}
        for family, *row in self._read(lambda connection: connection.execute(query).fetchall(), nothing):
            rows.setdefault(family, []).append(row)
        return sorted((_lesson(family, each) for family, each in rows.items()), key=lambda each: -each.last_ended)

    def _last(self, names: Iterable[str], column: str) -> dict[str, list[int]]:
        """Return a value of the last ten successes of each name, else of its family; without those that have none."""

        def act(connection: sqlite3.Connection) -> dict[str, list[int]]:
            found = ((name, self._last_of(connection, _text(name), column)) for name in names)
            return {name: values for name, values in found if values}

        return self._read(act, {})

    def _last_of(self, connection: sqlite3.Connection, name: str, column: str) -> list[int]:
        """Return the values of one name; what waits to be written comes first."""
        family = family_of(name)
        with self._lock:
            fresh = {"name": self._waiting.get((name, True), ()), "family": self._kin.get(family, ())}
            recent = {key: [getattr(row, column) for row in reversed(rows)] for key, rows in fresh.items()}
        for key, value in (("name", name), ("family", family)):
            query = (
                f"SELECT {column} FROM runs WHERE {key} = ? AND outcome = ? AND {column} IS NOT NULL "  # noqa: S608 - ours
                f"AND {_SOUND} ORDER BY id DESC LIMIT ?"
            )
            written = (row[0] for row in connection.execute(query, (value, Outcome.SUCCESS, LAST)))
            found = [each for each in (*recent[key], *written) if each is not None]
            if found:
                return found[:LAST]
        return []

    def _read(self, act: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """Return what is read; nothing if that cannot be, which is said once."""
        with self._file_lock:
            try:
                return self._use(act)
            except (OSError, sqlite3.Error) as error:
                self._say(error)
                return nothing

    # The file

    def _use(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Act on the file in a connection of its own; a file that proves broken is set aside, and a new one used."""
        try:
            with closing(_connect(self.path)) as connection:
                return act(connection)
        except _UNREADABLE as error:
            if isinstance(error, sqlite3.Error) and _code(error) not in _BROKEN:
                raise
            self._set_aside(error)
        with closing(_connect(self.path)) as connection:
            return act(connection)

    def _set_aside(self, error: Exception) -> None:
        """Give a broken file another name; ConfigError if it does not look like one that may be moved."""
        path = self.path
        if path.suffix.lower() not in _SUFFIXES:
            raise ConfigError(f"{path} is no history ({error}): name another file, such as history.db")
        if _is_sound(path):
            return  # another program has done the same
        aside = path.with_name(f"{path.name}.broken-{time.time_ns()}")
        path.rename(aside)
        for more in ("-wal", "-shm"):
            Path(f"{path}{more}").unlink(missing_ok=True)
        self._log.warning("history %s was broken (%s); it is now %s, and a new one begins", path, error, aside.name)

    def _say(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            self._log.error("history %s is not written: %s; the run goes on", self.path, _told(error))


def _append(rows: dict[K, deque[Finished]], key: K, row: Finished) -> None:
    """Add to the rows of a key, of which the last are kept, as are the last keys."""
    if key not in rows:
        if len(rows) >= _NAMES_WAITING:
            del rows[next(iter(rows))]
        rows[key] = deque(maxlen=KEPT_OF_A_NAME)
    rows[key].append(row)


def _connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a history, which is made if there is none; ConfigError if it is none, or too new."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # names and commands are the user's alone
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        if not _has_tables(connection):
            _make(connection)
        _check(connection, path)
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of another program, or of a newer whywait."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise ConfigError(f"{path} is a database of another program, no history: name another file")
    if version > VERSION:
        raise ConfigError(
            f"history {path} was written by a newer whywait (format {version}; this one knows {VERSION}): "
            "install that version, or name another file"
        )


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, unless another program does so."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:  # another program makes the same file; this one step waits for no other
            if time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_S)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not _has_tables(connection):
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)


def _keep(connection: sqlite3.Connection, waiting: dict[tuple[str, bool], deque[Finished]]) -> None:
    """Add attempts in one transaction, and drop what is beyond the bounds."""
    columns = ", ".join(("family", *Finished._fields))
    places = ", ".join("?" * (len(Finished._fields) + 1))
    of_a_name = "name = :name AND (outcome = 'success') = :success"
    too_many = f"id NOT IN (SELECT id FROM runs WHERE {of_a_name} ORDER BY id DESC LIMIT :most)"  # noqa: S608 - ours
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        in_order = sorted((row for rows in waiting.values() for row in rows), key=attrgetter("ended"))
        values = [(family_of(row.name), *row) for row in in_order]
        connection.executemany(f"INSERT INTO runs ({columns}) VALUES ({places})", values)  # noqa: S608 - ours
        for name, is_success in waiting:
            connection.execute(
                f"DELETE FROM runs WHERE {of_a_name} AND {too_many}",  # noqa: S608 - ours
                {"name": name, "success": is_success, "most": KEPT_OF_A_NAME},
            )
        connection.execute("DELETE FROM runs WHERE ended < ?", (time.time() - KEPT_FOR_S,))
        (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        if count > KEPT_IN_ALL:
            oldest = "SELECT id FROM runs ORDER BY ended LIMIT ?"
            connection.execute(f"DELETE FROM runs WHERE id IN ({oldest})", (count - KEPT_IN_ALL,))  # noqa: S608 - ours


def _text(name: str) -> str:
    """Return a name as a file can keep it: one that came from bytes that are no text is written out."""
    return name if name.isascii() else name.encode(errors="backslashreplace").decode()


def _lesson(family: str, rows: Iterable[Any]) -> Lesson:
    """Return what attempts of one family, the latest first, come to."""
    rows = list(rows)
    good = [row for row in rows if row[0] == Outcome.SUCCESS]
    ran = [row[1] for row in good[:LAST]]
    peaks = [row[2] for row in good if row[2] is not None][:LAST]
    outcomes = dict(Counter(row[0] for row in rows))
    middle = median(ran) / NS_PER_S if ran else None
    return Lesson(family, len(rows), outcomes, middle, max(peaks, default=None), max(row[3] for row in rows))


def _is_sound(path: Path) -> bool:
    try:
        with closing(_connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check").fetchone()[0] == "ok")
    except _UNREADABLE:
        return False


def _code(error: Exception) -> int:
    """Return the primary code of an error of SQLite; the upper bits only tell more."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_passing(error: Exception) -> bool:
    """Return whether an error is one of the machine's, such as a full disk, rather than of the path."""
    return _code(error) in _PASSING or getattr(error, "errno", None) in _NO_ROOM


def _told(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
