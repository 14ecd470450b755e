"""What a start does before it trusts a store: it reads every row, and notices what is damaged or missing.

A whole store is used as it is. If anything is damaged or missing, the files are copied to a folder beside the store, a
new store is made of the rows that are whole, and the client that started the service is told what was lost.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from whywait.errors import MachineError
from whywait.machine import moments
from whywait.machine.database import Transaction, open_file
from whywait.machine.home import sync_folder
from whywait.machine.rows import COLUMNS, KeptJob, digest, environment_key, job_of
from whywait.machine.seal import Seal, Sealed

SIDE_FILES: Final = ("-wal", "-shm")
NAMED: Final = 20  # ranges of numbers in a notice


@dataclass
class Content:
    """What is whole in a store, and what is wrong with the rest."""

    sealed: Sealed = field(default_factory=Sealed)
    jobs: dict[int, KeptJob] = field(default_factory=dict)  # by number, in the order of acceptance
    environments: dict[str, str] = field(default_factory=dict)  # JSON by key
    scopes: dict[str, dict[str, Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def read(connection: sqlite3.Connection, seal: Seal) -> Content:
    """Read all of a store, and compare it with itself and with its seal."""
    found = Content()
    found.wrong += _structure(connection)
    for key, text in _rows(connection, found, "SELECT id, variables FROM environments", "id"):
        if isinstance(text, str) and environment_key(text) == key:
            found.environments[key] = text
    for key, text, mark in _rows(connection, found, "SELECT key, options, digest FROM scopes", "key"):
        if isinstance(text, str) and isinstance(key, str) and digest(key, text) == mark:
            found.scopes[key] = json.loads(text)
        else:
            found.wrong.append("the limits of a scope are damaged")
    lost: set[int] = set()
    columns = ", ".join(COLUMNS)
    for number, *values, mark in _rows(connection, found, f"SELECT {columns}, digest FROM jobs", "number"):  # noqa: S608 - ours
        job = job_of((number, *values), mark)
        if job is None or job.environment not in found.environments:
            lost.add(number)
        else:
            found.jobs[number] = job
    found.jobs = dict(sorted(found.jobs.items()))
    counts = _rows(connection, found, "SELECT commits, jobs, last FROM seal", "commits")
    connection.execute("PRAGMA writable_schema = OFF")
    found.sealed = max((Sealed(*row) for row in counts if all(isinstance(each, int) for each in row)), default=Sealed())
    lost.update(_compare(found, seal))
    if lost:
        found.wrong.append(f"{_in_ranges(lost)} {'is' if len(lost) == 1 else 'are'} lost")
    elif found.sealed.jobs != len(found.jobs):
        found.wrong.append(f"{len(found.jobs)} of {found.sealed.jobs} jobs are whole")
    return found


def _compare(found: Content, seal: Seal) -> range:
    """Note what the seal knows of and the store does not; return the numbers of jobs that are lost by that."""
    sealed, known = seal.read(), found.sealed
    if sealed is None:
        if known.commits:
            found.wrong.append("its seal is missing or damaged: if the last changes are missing, nothing tells")
    elif sealed.commits > known.commits:
        changes = sealed.commits - known.commits
        found.wrong.append(f"the last {'change is' if changes == 1 else f'{changes} changes are'} missing")
        found.sealed = Sealed(sealed.commits, known.jobs, max(sealed.last, known.last))
        return range(known.last + 1, sealed.last + 1)
    return range(0)


def rebuild(path: str, content: Content, seal: Seal) -> None:
    """Make a new store of what is whole in an old one, which is closed."""
    fresh = f"{path}.new"
    for each in (fresh, *(fresh + end for end in SIDE_FILES)):
        with suppress(FileNotFoundError):
            os.unlink(each)
    before = Sealed(content.sealed.commits, 0, content.sealed.last)
    with closing(open_file(fresh)) as connection:
        new = Transaction(connection, before)
        for job in content.jobs.values():
            new.accept(job, content.environments[job.environment])
        for key, options in content.scopes.items():
            new.keep_scope(key, options)
        content.sealed = new.commit()
    for end in SIDE_FILES:  # first: the new store is not to be taken for what the old log belongs to
        with suppress(FileNotFoundError):
            os.unlink(path + end)
    os.replace(fresh, path)
    sync_folder(os.path.dirname(path))
    seal.write(content.sealed)


def is_only_log(path: str) -> bool:
    """Return whether of a store only SQLite's log is left, which SQLite removes when it opens the store."""
    with suppress(FileNotFoundError):
        return os.path.getsize(f"{path}-wal") > 0 and not (os.path.exists(path) and os.path.getsize(path))
    return False


def copy_files(path: str, seal_path: str) -> str:
    """Copy the files of a store to a new folder beside it; return the folder."""
    began = f"{os.path.dirname(path)}/damaged-{moments.now().wall:.0f}"
    folder = next(each for each in (began, *(f"{began}-{n}" for n in range(2, 1000))) if not os.path.exists(each))
    try:
        os.mkdir(folder, 0o700)
        for each in (path, *(path + end for end in SIDE_FILES), seal_path):
            with suppress(FileNotFoundError):
                shutil.copy2(each, folder)
    except OSError as error:
        raise MachineError(f"{path} is damaged, and its files cannot be copied to {folder}: {error}") from None
    return folder


def _in_ranges(numbers: Iterable[int]) -> str:
    """Return numbers of jobs as people write them: jobs 3, 7 to 9."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:NAMED]]
    several = len(ranges) > 1 or ranges[0][0] != ranges[0][1]
    return f"{'jobs' if several else 'job'} {', '.join(shown)}{' and more' if len(ranges) > NAMED else ''}"


def _structure(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with the file."""
    try:
        (told,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        told = str(error)
    last_line = told.rpartition("\n")[2]  # of more than one, the first names the database
    return [] if told == "ok" else [f"its structure is damaged ({last_line})"]


def _rows(connection: sqlite3.Connection, found: Content, query: str, key: str) -> Iterator[Sequence[Any]]:
    """Yield the rows that can be read: forward to where that fails, then backward to the same place."""
    for direction in ("ASC", "DESC"):
        try:
            yield from connection.execute(f"{query} ORDER BY {key} {direction}")
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if (wrong := f"rows cannot be read ({error})") not in found.wrong:
                found.wrong.append(wrong)
        else:
            return
