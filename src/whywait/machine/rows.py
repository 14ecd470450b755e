"""A job as the store keeps it: its fields, its row, and the digest by which a start sees whether a row is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from whywait.machine.moments import Moment

MOMENTS: Final = frozenset(("added", "started", "ended"))
IN_JSON: Final = MOMENTS | {"command", "directory", "options", "facts"}


@dataclass(slots=True, eq=False)
class Job:
    """One job as it is kept: what was asked for, and how far it has come.

    ``state`` is ``pending``, ``running`` or ``ended``.
    """

    number: int
    scope: str
    name: str
    command: list[str]
    directory: str
    environment: str  # the key of it in the store
    options: dict[str, Any]
    added: Moment
    state: str = "pending"
    attempt: int = 0
    is_paused: bool = False  # as a client wished
    abort: str | None = None  # the cause for which the job was asked to end while it ran: no later attempt starts
    started: Moment | None = None
    ended: Moment | None = None
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


COLUMNS: Final = tuple(each.name for each in fields(Job))


def as_kept(name: str, value: Any) -> Any:  # noqa: ANN401 - of any field
    """Return the value of a field as the file has it; JSON keeps bytes that are no text, in names of files."""
    return json.dumps(value) if name in IN_JSON else int(value) if isinstance(value, bool) else value


def job_of(row: Sequence[Any], mark: object) -> Job | None:
    """Return the job of a row; None if the row is not the one that the digest ``mark`` was made of."""
    try:
        return _job(row) if digest(*row) == mark else None
    except (TypeError, ValueError, RecursionError):  # what no service has written
        return None


def _job(row: Sequence[Any]) -> Job:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in IN_JSON:
        values[name] = json.loads(values[name])
    for name in MOMENTS:
        values[name] = None if values[name] is None else Moment(*values[name])
    values["is_paused"] = bool(values["is_paused"])
    return Job(**values)


def digest(*values: Any) -> str:  # noqa: ANN401 - those of a row
    """Return a digest of the values of a row."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def environment_key(text: str) -> str:
    """Return the key of an environment, given as JSON: a digest, so that equal ones are kept once."""
    return hashlib.sha256(text.encode()).hexdigest()
