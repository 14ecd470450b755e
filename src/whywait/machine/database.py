"""The file of the store: how it is opened and brought up to date, and the statements that change it."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import Any, Final
from urllib.parse import quote

from whywait.errors import MachineError, printable, shortened
from whywait.machine.home import sync_folder
from whywait.machine.rows import COLUMNS, KeptJob, State, as_kept, columns_of, digest, row_of
from whywait.machine.seal import Sealed

APPLICATION_ID: Final = 0x77687977  # "whyw"
_ALL: Final = ", ".join(COLUMNS)

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
    """
    CREATE TABLE seal (commits INTEGER NOT NULL, jobs INTEGER NOT NULL, last INTEGER NOT NULL);
    INSERT INTO seal SELECT 0, (SELECT count(*) FROM jobs),
        coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'jobs'), 0);
    CREATE TABLE kept (
        number INTEGER PRIMARY KEY,
        scope TEXT NOT NULL,
        name TEXT NOT NULL,
        command TEXT NOT NULL,
        directory TEXT NOT NULL,
        environment TEXT NOT NULL,
        options TEXT NOT NULL,
        added TEXT NOT NULL,
        state TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        is_paused INTEGER NOT NULL,
        abort TEXT,
        started TEXT NOT NULL,
        ended TEXT NOT NULL,
        outcome TEXT,
        cause TEXT,
        exit_code INTEGER,
        facts TEXT NOT NULL,
        digest TEXT,
        UNIQUE (scope, name)
    );
    INSERT INTO kept SELECT number, scope, name, command, directory, environment, options, json_array(added),
        CASE state WHEN 'paused' THEN 'pending' ELSE state END, attempt, state = 'paused', NULL,
        CASE WHEN started IS NULL THEN 'null' ELSE json_array(started) END,
        CASE WHEN ended IS NULL THEN 'null' ELSE json_array(ended) END,
        outcome, cause, exit_code, facts, NULL FROM jobs;
    DROP TABLE jobs;
    ALTER TABLE kept RENAME TO jobs;
    UPDATE jobs SET digest = digest(number, scope, name, command, directory, environment, options, added, state,
        attempt, is_paused, abort, started, ended, outcome, cause, exit_code, facts);
    ALTER TABLE scopes ADD COLUMN digest TEXT;
    UPDATE scopes SET digest = digest(key, options);
    """,
)


class Transaction:
    """What the changes of one commit write, and how far the store has come with them."""

    def __init__(self, connection: sqlite3.Connection, before: Sealed) -> None:
        """Begin; ``before`` is how far the store has come."""
        self._connection = connection
        self._jobs, self._last = before.jobs, before.last
        self._commits = before.commits + 1
        self._touched: dict[int, None] = {}
        connection.execute("BEGIN IMMEDIATE")

    def accept(self, job: KeptJob, environment: str) -> None:
        """Insert a job, and its environment, as JSON, if no other job has it."""
        self._connection.execute(
            "INSERT OR IGNORE INTO environments (id, variables) VALUES (?, ?)", (job.environment, environment)
        )
        values = row_of(job)
        places = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO jobs ({_ALL}) VALUES ({places})", values)  # noqa: S608 - ours
        self._touched[job.number] = None
        self._jobs += 1
        self._last = max(self._last, job.number)

    def keep_scope(self, key: str, options: Mapping[str, Any]) -> None:
        """Write what a scope was opened with."""
        values = (key, json.dumps(options))
        self._connection.execute(
            "INSERT OR REPLACE INTO scopes (key, options, digest) VALUES (?, ?, ?)", (*values, digest(*values))
        )

    def update(self, number: int, state: State) -> None:
        """Give a job another state."""
        columns = columns_of(state)
        names = ", ".join(f"{name} = ?" for name in columns)
        changed = self._connection.execute(f"UPDATE jobs SET {names} WHERE number = ?", (*as_kept(columns), number))  # noqa: S608 - ours
        if changed.rowcount != 1:
            raise LookupError(f"there is no job {number} to change")
        self._touched[number] = None

    def forget(self, numbers: Iterable[int]) -> None:
        """Delete jobs, and what no other job has of environments and scopes."""
        gone = self._connection.executemany("DELETE FROM jobs WHERE number = ?", [(number,) for number in numbers])
        self._jobs -= gone.rowcount
        self._connection.execute("DELETE FROM environments WHERE id NOT IN (SELECT environment FROM jobs)")
        self._connection.execute("DELETE FROM scopes WHERE key NOT IN (SELECT scope FROM jobs)")

    def commit(self) -> Sealed:
        """Write digests and counts, and commit; return how far the store has come."""
        self._connection.executemany(
            f"UPDATE jobs SET digest = digest({_ALL}) WHERE number = ?",  # noqa: S608 - ours
            [(number,) for number in self._touched],
        )
        after = Sealed(self._commits, self._jobs, self._last)
        self._connection.execute("UPDATE seal SET commits = ?, jobs = ?, last = ?", after)
        self._connection.execute("COMMIT")
        return after


def open_file(path: str) -> sqlite3.Connection:
    """Open the file of a store, make it or bring it up to date; raise MachineError if it is none of ours."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise broken(path, "it is no regular file")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # before SQLite makes it for all to read
        connection = connect(path)
    except (sqlite3.Error, OSError) as error:
        raise not_opened(path, error) from None
    try:
        with closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA writable_schema = ON")  # else SQLite reads nothing of a file that was cut
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute("PRAGMA secure_delete = ON")  # environments hold secrets
            _bring_up_to_date(path, cursor)
        sync_folder(os.path.dirname(path))
    except (sqlite3.OperationalError, OSError) as error:
        connection.close()
        raise not_opened(path, error) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: no text in what SQLite quotes
        connection.close()
        raise broken(path, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: str, *, read_only: bool = False) -> sqlite3.Connection:
    """Return a connection to the file as it is."""
    address = f"file:{quote(path)}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    connection.create_function("digest", -1, digest, deterministic=True)
    return connection


def broken(path: str, what: object) -> MachineError:
    """Return the error of a file that no service has written."""
    return MachineError(
        f"{path} is no store of jobs, or is broken ({printable(shortened(str(what)))}); "
        "move it away to begin with an empty one"
    )


def not_opened(path: str, error: Exception) -> MachineError:
    """Return the error of a file that the system does not open."""
    return MachineError(f"{path} cannot be opened ({error}): is the disk full, or the file locked?")


def _bring_up_to_date(path: str, cursor: sqlite3.Cursor) -> None:
    (version,) = cursor.execute("PRAGMA user_version").fetchone()
    (application,) = cursor.execute("PRAGMA application_id").fetchone()
    (tables,) = cursor.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (version or tables) and application != APPLICATION_ID:
        raise sqlite3.DatabaseError("it belongs to another program")
    if version > len(MIGRATIONS):
        raise MachineError(
            f"{path} was written by a newer whywait (format {version}; this one knows {len(MIGRATIONS)}): "
            "install that version, or choose another folder by WHYWAIT_HOME"
        )
    for number, migration in enumerate(MIGRATIONS[version:], version + 1):
        cursor.executescript(
            f"BEGIN IMMEDIATE; {migration}; PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {number}; COMMIT;"
        )
