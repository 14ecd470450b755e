"""What happened: the kinds of events and their readable form.

The kernel emits plain tuples (few tracked objects, no work for nobody); :class:`Event` gives them names.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from whywait.kernel.state import TaskState

# (seq, time_ns, kind, scope key, task number, task name, cause seq, details)
RawEvent = tuple[int, int, str, str, int | None, str | None, int | None, tuple[tuple[str, Any], ...] | None]


class Kind:
    """The closed set of event kinds."""

    TASK_SUBMITTED: Final = "TASK_SUBMITTED"
    TASK_READY: Final = "TASK_READY"
    TASK_STARTED: Final = "TASK_STARTED"
    TASK_PAUSE_ASKED: Final = "TASK_PAUSE_ASKED"
    TASK_PAUSED: Final = "TASK_PAUSED"
    TASK_RESUMED: Final = "TASK_RESUMED"
    TASK_ABORT_ASKED: Final = "TASK_ABORT_ASKED"
    TASK_FINISHED: Final = "TASK_FINISHED"
    TASK_CANCELLED: Final = "TASK_CANCELLED"
    TASK_DROPPED: Final = "TASK_DROPPED"
    TASK_REJECTED: Final = "TASK_REJECTED"
    TASK_RETRIED: Final = "TASK_RETRIED"
    TASK_STARVED: Final = "TASK_STARVED"
    HANDLER_STARTED: Final = "HANDLER_STARTED"
    HANDLER_ENDED: Final = "HANDLER_ENDED"
    WORKER_STARTED: Final = "WORKER_STARTED"
    WORKER_ENDED: Final = "WORKER_ENDED"
    STREAM_OPENED: Final = "STREAM_OPENED"
    STREAM_CLOSED: Final = "STREAM_CLOSED"
    SCOPE_CREATED: Final = "SCOPE_CREATED"
    SCOPE_ATTACHED: Final = "SCOPE_ATTACHED"
    SCOPE_RUNNING: Final = "SCOPE_RUNNING"
    SCOPE_SUSPENDED: Final = "SCOPE_SUSPENDED"
    SCOPE_RESUMED: Final = "SCOPE_RESUMED"
    SCOPE_DISPOSING: Final = "SCOPE_DISPOSING"
    SCOPE_DISPOSED: Final = "SCOPE_DISPOSED"
    PERIODIC_ADDED: Final = "PERIODIC_ADDED"
    PERIODIC_TICK: Final = "PERIODIC_TICK"
    PERIODIC_SKIPPED: Final = "PERIODIC_SKIPPED"
    PERIODIC_ENABLED: Final = "PERIODIC_ENABLED"
    PERIODIC_DISABLED: Final = "PERIODIC_DISABLED"


class Event(NamedTuple):
    """One thing that happened, in the order of ``seq``; ``cause`` is the seq of the event that led to it."""

    seq: int
    time_ns: int
    kind: str
    scope: str
    number: int | None
    name: str | None
    cause: int | None
    details: tuple[tuple[str, Any], ...] | None

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a JSON-ready dict without empty fields."""
        data: dict[str, Any] = {"seq": self.seq, "time_ns": self.time_ns, "kind": self.kind, "scope": self.scope}
        for key in ("number", "name", "cause"):
            value = getattr(self, key)
            if value is not None:
                data[key] = value
        if self.details:
            data["details"] = dict(self.details)
        return data


def outcome_details(outcome: str, cause: str | None) -> tuple[tuple[str, Any], ...]:
    """Return the details of an ending; one shared tuple for each pair."""
    key = (outcome, cause)
    details = _OUTCOMES.get(key)
    if details is None:
        details = _OUTCOMES[key] = (("outcome", outcome), ("cause", cause)) if cause else (("outcome", outcome),)
    return details


READY_DETAILS: Final = (("state", TaskState.READY),)
QUEUED_DETAILS: Final = (("state", TaskState.QUEUED),)
SUCCESS_DETAILS: Final = (("outcome", "SUCCESS"),)

_OUTCOMES: dict[tuple[str, str | None], tuple[tuple[str, Any], ...]] = {("SUCCESS", None): SUCCESS_DETAILS}
