"""A job of the service: what was asked for, where it stands, its row in the store, and the digest of a row.

A job has two states, both values that never change themselves. ``decided`` is where the kernel has it, set under the
authority's lock, and ``state`` is what of that is on the disk: the store sets it when it has written a decision.
Clients are told of ``state``, so what they are told is kept.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from whywait.kernel.state import TaskState
from whywait.machine.moments import Moment
from whywait.support.known import Known

if TYPE_CHECKING:
    from whywait.runtime.handle import Handle


@dataclass(frozen=True, slots=True)
class Pending:
    """The job waits for its first attempt, or for the next."""

    attempt: int = 0  # how many have begun
    is_paused: bool = False  # as a client wished
    exit_code: int | None = None  # of the last attempt


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt runs."""

    attempt: int
    started: Moment
    is_paused: bool = False
    abort: str | None = None  # the cause for which the job was asked to end: no later attempt starts
    facts: dict[str, Any] = field(default_factory=dict)  # the devices that it has


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has ended, or never ran; no attempt follows."""

    outcome: str
    cause: str | None
    ended: Moment
    attempt: int = 0
    started: Moment | None = None  # of the last attempt
    exit_code: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # usage, devices, waits, its retry


State = Pending | Running | Ended

KINDS: Final[dict[str, type[State]]] = {"pending": Pending, "running": Running, "ended": Ended}
_KIND_OF: Final = {kind: name for name, kind in KINDS.items()}
NOTHING: Final[dict[str, Any]] = {  # the columns of a state, with what a state that lacks one has there
    "state": "", "attempt": 0, "is_paused": False, "abort": None, "started": None, "ended": None, "outcome": None,
    "cause": None, "exit_code": None, "facts": {},
}  # fmt: skip
ASKED: Final = ("number", "scope", "name", "command", "directory", "environment", "options", "added")
COLUMNS: Final = (*ASKED, *NOTHING)
MOMENTS: Final = frozenset(("added", "started", "ended"))
IN_JSON: Final = MOMENTS | {"command", "directory", "options", "facts"}


@dataclass(slots=True, eq=False)
class KeptJob(Known):
    """One job of the service.

    The last fields are of a job that has not ended: its task, and what waits for it.
    """

    number: int
    scope: str
    name: str
    command: list[str]
    directory: str
    environment: str  # the key of it in the store
    options: dict[str, Any]
    added: Moment
    state: State = Pending()
    decided: State = Pending()
    variables: Mapping[str, str] = field(default_factory=dict)  # its environment
    handle: Handle[Any] | None = None
    accepted: Future[None] | None = None  # None: a former service has accepted it
    started: Callable[[], object] | None = None  # waits until the start of the present attempt is on the disk
    is_retryable: bool = False  # the last attempt has failed in a way that another one may mend
    waits: dict[str, int] = field(default_factory=dict)  # ns by cause, of all attempts of this service
    watchers: list[Future[None]] = field(default_factory=list)  # done when the end is on the disk

    @property
    def id(self) -> str:
        """What users call it: its number as text, or the name that it was given."""
        return self.name

    @property
    def full_id(self) -> str:
        """Its scope and its name, which no other job has."""
        return f"{self.scope}/{self.name}"

    @property
    def shown_state(self) -> str:
        """Where it stands, in the words for tasks."""
        match self.state:
            case Ended():
                return TaskState.DISPOSED
            case Running(abort=str()):
                return TaskState.DISPOSING
            case Pending(is_paused=True) | Running(is_paused=True):
                return TaskState.PAUSED
            case Running():
                return TaskState.RUNNING
        handle = self.handle
        is_queued = handle is not None and handle.state == TaskState.QUEUED
        return TaskState.QUEUED if is_queued else TaskState.READY

    def known_as(self, id: str | None = None) -> str:
        """Return what the history calls it: the name that it was given, else its command."""
        del id  # it may be a number
        return shlex.join(self.command) if self.name == str(self.number) else self.name


def columns_of(state: State) -> dict[str, Any]:
    """Return the values of all columns of a state."""
    own = {each.name: getattr(state, each.name) for each in fields(state)}
    return {**NOTHING, **own, "state": _KIND_OF[type(state)]}


def row_of(job: KeptJob) -> list[Any]:
    """Return the values of a job's row, as the file has them."""
    asked = {name: getattr(job, name) for name in ASKED}
    return as_kept({**asked, **columns_of(job.state)})


def as_kept(values: Mapping[str, Any]) -> list[Any]:
    """Return the values of columns as the file has them; JSON keeps bytes that are no text, in names of files."""
    return [
        json.dumps(value) if name in IN_JSON else int(value) if isinstance(value, bool) else value
        for name, value in values.items()
    ]


def job_of(row: Sequence[Any], mark: object) -> KeptJob | None:
    """Return the job of a row; None if the row is not the one that the digest ``mark`` was made of."""
    try:
        return _job(row) if digest(*row) == mark else None
    except (TypeError, ValueError, RecursionError, KeyError):  # what no service has written
        return None


def _job(row: Sequence[Any]) -> KeptJob:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in IN_JSON:
        values[name] = json.loads(values[name])
    for name in MOMENTS:
        values[name] = None if values[name] is None else Moment(*values[name])
    values["is_paused"] = bool(values["is_paused"])
    kind = KINDS[values["state"]]
    state = kind(**{each.name: values[each.name] for each in fields(kind)})
    return KeptJob(**{name: values[name] for name in ASKED}, state=state, decided=state)


def digest(*values: Any) -> str:
    """Return a digest of the values of a row."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def as_text(environment: Mapping[str, str]) -> str:
    """Return an environment as the store has it."""
    return json.dumps(environment, sort_keys=True)


def environment_key(text: str) -> str:
    """Return the key of an environment, given as JSON: a digest, so that equal ones are kept once."""
    return hashlib.sha256(text.encode()).hexdigest()
