"""What happened: the kinds of events and their readable form.

The kernel emits plain tuples (few tracked objects, no work for nobody); :class:`Event` gives them names.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from whywait.kernel.model import generated_id

Details = tuple[tuple[str, Any], ...]

# (seq, time_ns, kind, scope key, task number, task name, cause seq, details)
# What comes most often tells its details in short, because building them costs: `details_of` spells them out.
RawEvent = tuple[int, int, str, str, int | None, str | None, int | None, Any]


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
    TASK_PLACED: Final = "TASK_PLACED"
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
    LANE_WAITS: Final = "LANE_WAITS"
    LIMIT_CHANGED: Final = "LIMIT_CHANGED"
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
    details: Details | None

    @classmethod
    def of(cls, raw: RawEvent) -> Event:
        """Return a raw event with names."""
        return cls(*raw[:7], details_of(raw))

    def to_raw(self) -> RawEvent:
        """Return the event as the kernel told it; the opposite of :meth:`of`."""
        if self.kind == Kind.TASK_STARTED and self.details:
            return (*self[:7], dict(self.details)["waits"])
        return (*self[:7], self.details)

    @property
    def id(self) -> str | None:
        """The id of the task it is about: the name that the user gave, or the generated one."""
        if self.name is None and self.number is not None:
            return generated_id(self.number)
        return self.name

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a JSON-ready dict without empty fields."""
        data: dict[str, Any] = {"seq": self.seq, "time_ns": self.time_ns, "kind": self.kind, "scope": self.scope}
        for key in ("number", "name", "cause"):
            value = getattr(self, key)
            if value is not None:
                data[key] = value
        if self.details:
            data["details"] = details = dict(self.details)
            if "demand" in details:
                details["demand"] = dict(details["demand"])
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Event:
        """Return the event that :meth:`to_dict` has told of."""
        details = data.get("details")
        if details is not None:
            details = {key: tuple(value) if isinstance(value, list) else value for key, value in details.items()}
            if "demand" in details:
                details["demand"] = tuple(details["demand"].items())
            details = tuple(details.items())
        head = (data["seq"], data["time_ns"], data["kind"], data["scope"])
        return cls(*head, data.get("number"), data.get("name"), data.get("cause"), details)


def details_of(raw: RawEvent) -> Details | None:
    """Return the details of a raw event, spelled out: the two kinds that come most often are written in short."""
    kind, details = raw[2], raw[7]
    if details is None:
        return None
    if kind == Kind.TASK_STARTED:  # the waits, or the one cause and its time
        return (("waits", details if isinstance(details, dict) else {details[0]: details[1]}),)
    if kind == Kind.TASK_SUBMITTED and isinstance(details[0][0], tuple):  # all else, and whom it awaits
        return (*details[0], ("after", details[1:]))
    return details  # type: ignore[no-any-return] # not in short


def outcome_details(outcome: str, cause: str | None) -> Details:
    """Return the details of an ending; one shared tuple for each pair."""
    key = (outcome, cause)
    details = _OUTCOMES.get(key)
    if details is None:
        details = _OUTCOMES[key] = (("outcome", outcome), ("cause", cause)) if cause else (("outcome", outcome),)
    return details


def submitted_details(state: str, priority: int, demand: tuple[tuple[str, int], ...]) -> Details:
    """Return what a TASK_SUBMITTED tells of a task."""
    details: Details = (("state", state), ("priority", priority))
    return (*details, ("demand", demand)) if demand else details


SUCCESS_DETAILS: Final = (("outcome", "SUCCESS"),)

_OUTCOMES: dict[tuple[str, str | None], Details] = {("SUCCESS", None): SUCCESS_DETAILS}
