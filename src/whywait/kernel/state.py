"""States, outcomes, causes, and the transition tables as data.

Theory of operation
-------------------
A **task** is either *pending* (it needs no slot: QUEUED behind dependencies, READY in a lane, or PAUSED from one of
these) or it *holds a slot* (RUNNING, DISPOSING, or PAUSED from RUNNING, that is: parked at a checkpoint). It takes
its slot and its share of the budget in one step, ``commit``, and gives them back in one step, ``ended``, when the
engine says that the body has really ended; in between nothing, no abort and no timeout, frees them. A pending task
that is cancelled, dropped, or loses a dependency goes straight to DISPOSED. DISPOSED is final.

A **scope** is the gate of its tasks. It accepts submissions in ATTACHED and RUNNING, lets tasks start in the same
two states, keeps everything pending while SUSPENDED, and ends all it contains on its way to DISPOSED.

Each table row is ``(from, event, to)``. The kernel asks :func:`task_step` and :func:`scope_step` before every change
that is not on the hot path (the hot path compares the one state it starts from), the tables in ``docs/concepts.md``
and the tests of all illegal pairs are checked against the rows.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from whywait.errors import InvalidTransition

Row = tuple[str, str, str]


class Word(StrEnum):
    """A word of a closed set: equal to its own text, with the same hash, and to nothing else."""

    def __init_subclass__(cls) -> None:
        """Let the words be found like other attributes of a class; before Python 3.12 that takes twice the time."""
        super().__init_subclass__()
        for name, word in cls.__members__.items():
            type.__setattr__(cls, name, word)

    def __repr__(self) -> str:
        """Show as the text that it is."""
        return repr(self.value)


class TaskState(Word):
    """Where a task stands."""

    QUEUED = "QUEUED"
    READY = "READY"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DISPOSING = "DISPOSING"
    DISPOSED = "DISPOSED"


class ScopeState(Word):
    """Where a scope stands."""

    INIT = "INIT"
    ATTACHED = "ATTACHED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    DISPOSING = "DISPOSING"
    DISPOSED = "DISPOSED"


# What a sentence calls the state of a task or of a scope; fields and events have the state itself.
STATE_WORDS: Final[dict[str, str]] = {
    TaskState.QUEUED: "waiting",
    TaskState.READY: "waiting",
    TaskState.RUNNING: "running",
    TaskState.PAUSED: "paused",
    TaskState.DISPOSING: "ending",
    TaskState.DISPOSED: "ended",
    ScopeState.INIT: "not open yet",
    ScopeState.ATTACHED: "open",
    ScopeState.SUSPENDED: "suspended",
}


class Outcome(Word):
    """How a task ended; exactly one for each task. It is text in lower case, in Python, in JSON and in files."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    REJECTED = "rejected"


class Cause(Word):
    """Why a task ended the way it did; the code beside the outcome."""

    AUTHORITY_BROKEN = "authority_broken"
    EXCEPTION = "exception"
    EXIT_CODE = "exit_code"
    WORKER_LOST = "worker_lost"
    OUT_OF_MEMORY = "out_of_memory"
    HANDLER = "handler"
    WORKER = "worker"
    RUN_TIMEOUT = "run_timeout"
    CANCELLED = "cancelled"
    DEPENDENCY = "dependency"
    SCOPE_DISPOSED = "scope_disposed"
    PAUSE_TIMEOUT = "pause_timeout"
    LOOP_CLOSED = "loop_closed"
    MAX_WAIT = "max_wait"
    DISPLACED = "displaced"
    PERIODIC_OFF = "periodic_off"
    QUEUE_FULL = "queue_full"
    BUSY = "busy"
    SPAWN_LIMIT = "spawn_limit"
    INFEASIBLE = "infeasible"
    DUPLICATE = "duplicate"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    SCOPE_STATE = "scope_state"


class Wait(Word):
    """What a waiting task waits for; a budget gate adds its own name (``cpu``, ``ram``, ``licence``...)."""

    DEPENDENCY = "dependency"
    BACKOFF = "backoff"
    OVERLAP = "overlap"
    PAUSED = "paused"
    SLOT = "slot"
    SLOT_HIGHER = "slot_higher"
    SCOPE_STATE = "scope_state"
    SCOPE_SLOTS = "scope_slots"
    HELD_BACK = "held_back"


RESERVED_NAMES: Final = frozenset(Wait)

# The causes that each outcome of an engine-run or pending task may carry (T2).
CAUSES_OF: Final[dict[str, tuple[str | None, ...]]] = {
    Outcome.SUCCESS: (None,),
    Outcome.ERROR: (
        Cause.AUTHORITY_BROKEN,
        Cause.EXCEPTION,
        Cause.EXIT_CODE,
        Cause.WORKER_LOST,
        Cause.OUT_OF_MEMORY,
        Cause.HANDLER,
        Cause.WORKER,
    ),
    Outcome.TIMEOUT: (Cause.RUN_TIMEOUT,),
    Outcome.ABORTED: (
        Cause.CANCELLED,
        Cause.DEPENDENCY,
        Cause.SCOPE_DISPOSED,
        Cause.PAUSE_TIMEOUT,
        Cause.LOOP_CLOSED,
    ),
    Outcome.REJECTED: (Cause.MAX_WAIT, Cause.DISPLACED, Cause.PERIODIC_OFF),
}

TASK_TRANSITIONS: Final[tuple[Row, ...]] = (
    ("QUEUED", "wake", "READY"),
    ("QUEUED", "pause", "PAUSED"),
    ("QUEUED", "end", "DISPOSED"),
    ("READY", "commit", "RUNNING"),
    ("READY", "pause", "PAUSED"),
    ("READY", "end", "DISPOSED"),
    ("RUNNING", "park", "PAUSED"),
    ("RUNNING", "abort", "DISPOSING"),
    ("RUNNING", "ended", "DISPOSED"),
    ("PAUSED", "resume", "QUEUED"),
    ("PAUSED", "resume", "READY"),
    ("PAUSED", "resume", "RUNNING"),
    ("PAUSED", "abort", "DISPOSING"),
    ("PAUSED", "ended", "DISPOSED"),
    ("PAUSED", "end", "DISPOSED"),
    ("DISPOSING", "ended", "DISPOSED"),
)

SCOPE_TRANSITIONS: Final[tuple[Row, ...]] = (
    ("INIT", "mount", "ATTACHED"),
    ("ATTACHED", "first activation", "RUNNING"),
    ("RUNNING", "suspend", "SUSPENDED"),
    ("SUSPENDED", "resume", "RUNNING"),
    ("INIT", "dispose", "DISPOSING"),
    ("ATTACHED", "dispose", "DISPOSING"),
    ("RUNNING", "dispose", "DISPOSING"),
    ("SUSPENDED", "dispose", "DISPOSING"),
    ("DISPOSING", "all ended", "DISPOSED"),
)

_TASK_ROWS: Final = frozenset(TASK_TRANSITIONS)
_SCOPE_ROWS: Final = frozenset(SCOPE_TRANSITIONS)

# A scope in one of these states accepts submissions and lets its tasks start (O2).
OPEN_SCOPE_STATES: Final = (ScopeState.ATTACHED, ScopeState.RUNNING)
BARRED_SCOPE_STATES: Final = (ScopeState.INIT, ScopeState.SUSPENDED)  # nothing is taken in scopes below, either


def task_step(state: str, event: str, to: str, what: str) -> str:
    """Return ``to`` if a task may go there by ``event``; raise InvalidTransition otherwise."""
    if (state, event, to) not in _TASK_ROWS:
        raise InvalidTransition(_refusal("task", what, state, event, to, TASK_TRANSITIONS))
    return to


def scope_step(state: str, event: str, to: str, what: str) -> str:
    """Return ``to`` if a scope may go there by ``event``; raise InvalidTransition otherwise."""
    if (state, event, to) not in _SCOPE_ROWS:
        raise InvalidTransition(_refusal("scope", what, state, event, to, SCOPE_TRANSITIONS))
    return to


def _refusal(kind: str, what: str, state: str, event: str, to: str, rows: tuple[Row, ...]) -> str:
    ways = sorted({f"{name} -> {target}" for source, name, target in rows if source == state})
    allowed = ", ".join(ways) if ways else "nothing: this state is final"
    return f"{kind} {what} is {state}: '{event}' to {to} is not possible; allowed from {state}: {allowed}"
