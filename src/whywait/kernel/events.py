"""What happened: the kinds of events and their readable form.

The kernel emits plain tuples (few tracked objects, no work that nothing asked for); :class:`Event` gives them names.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from whywait.kernel.ids import function_shown, generated_id
from whywait.kernel.state import Outcome, Word

Details = tuple[tuple[str, Any], ...]
Streams = tuple[tuple[str, int], ...]  # names of streams, and how many chunks each has had
Waits = dict[str, int] | tuple[str, int]  # how a wait divides; one cause alone in short


class Started(NamedTuple):
    """What the start of a task tells if there is more than its wait: the units it got, how long it was starved."""

    waits: Waits | None
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    starved_ns: int = 0


# (seq, time_ns, kind, scope key, task number, task name, cause seq, details)
# What comes most often tells its details in short, because building them costs: `details_of` spells them out. In the
# place of the cause, which only iterations of periodics have, a TASK_SUBMITTED has the name of the task's function.
RawEvent = tuple[int, int, str, str, int | None, str | None, int | str | None, Any]


class Kind(Word):
    """The closed set of event kinds."""

    TASK_SUBMITTED = "TASK_SUBMITTED"
    TASK_READY = "TASK_READY"
    TASK_STARTED = "TASK_STARTED"
    TASK_PAUSE_ASKED = "TASK_PAUSE_ASKED"
    TASK_PAUSED = "TASK_PAUSED"
    TASK_RESUMED = "TASK_RESUMED"
    TASK_ABORT_ASKED = "TASK_ABORT_ASKED"
    TASK_FINISHED = "TASK_FINISHED"
    TASK_CANCELLED = "TASK_CANCELLED"
    TASK_DROPPED = "TASK_DROPPED"
    TASK_REJECTED = "TASK_REJECTED"
    TASK_RETRIED = "TASK_RETRIED"
    TASK_STARVED = "TASK_STARVED"
    TASK_PLACED = "TASK_PLACED"
    TASK_MEASURED = "TASK_MEASURED"
    TASK_OVERDRAWN = "TASK_OVERDRAWN"
    TASK_BLOCKED = "TASK_BLOCKED"
    TASK_UNBLOCKED = "TASK_UNBLOCKED"
    TASK_REGAINED = "TASK_REGAINED"
    HANDLER_STARTED = "HANDLER_STARTED"
    HANDLER_ENDED = "HANDLER_ENDED"
    WORKER_STARTED = "WORKER_STARTED"
    WORKER_ENDED = "WORKER_ENDED"
    STREAM_OPENED = "STREAM_OPENED"
    STREAM_CLOSED = "STREAM_CLOSED"
    SCOPE_CREATED = "SCOPE_CREATED"
    SCOPE_ATTACHED = "SCOPE_ATTACHED"
    SCOPE_RUNNING = "SCOPE_RUNNING"
    SCOPE_SUSPENDED = "SCOPE_SUSPENDED"
    SCOPE_RESUMED = "SCOPE_RESUMED"
    SCOPE_DISPOSING = "SCOPE_DISPOSING"
    SCOPE_DISPOSED = "SCOPE_DISPOSED"
    LANE_WAITS = "LANE_WAITS"
    LIMIT_CHANGED = "LIMIT_CHANGED"
    PERIODIC_ADDED = "PERIODIC_ADDED"
    PERIODIC_TICK = "PERIODIC_TICK"
    PERIODIC_SKIPPED = "PERIODIC_SKIPPED"
    PERIODIC_ENABLED = "PERIODIC_ENABLED"
    PERIODIC_DISABLED = "PERIODIC_DISABLED"


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
        return cls(*raw[:6], cause_of(raw), details_of(raw))

    def to_raw(self) -> RawEvent:
        """Return the event as the kernel told it; the opposite of :meth:`of`."""
        if self.kind == Kind.TASK_STARTED and self.details:
            details = dict(self.details)
            waits = details.get("waits")
            start = Started(waits, details.get("devices", ()), details.get("starved_ns", 0))
            return (*self[:7], start if start.devices or start.starved_ns else waits)
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
            for name in _MAPPINGS:
                if name in details:
                    details[name] = dict(details[name])
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Event:
        """Return the event that :meth:`to_dict` has told of."""
        details = data.get("details")
        if details is not None:
            details = {key: tuple(value) if isinstance(value, list) else value for key, value in details.items()}
            if "outcome" in details:
                details["outcome"] = read_outcome(details["outcome"])
            for name in _MAPPINGS:
                if name in details:
                    pairs = details[name].items()
                    details[name] = tuple((key, tuple(each) if isinstance(each, list) else each) for key, each in pairs)
            details = tuple(details.items())
        head = (data["seq"], data["time_ns"], data["kind"], data["scope"])
        return cls(*head, data.get("number"), data.get("name"), data.get("cause"), details)


def read_outcome(text: str) -> Outcome:
    """Return the outcome that a file tells; files of version 0.1 have it in upper case."""
    return Outcome(text.lower() if text.isupper() else text)


def cause_of(raw: RawEvent) -> int | None:
    """Return the seq of the event that led to a raw event."""
    return raw[6] if isinstance(raw[6], int) else None


def details_of(raw: RawEvent) -> Details | None:
    """Return the details of a raw event, spelled out: the kinds that come with most tasks are written in short."""
    kind, details = raw[2], raw[7]
    if details is None:
        return SUCCESS_DETAILS if kind == Kind.TASK_FINISHED else None
    if kind == Kind.TASK_STARTED:
        start = details if isinstance(details, Started) else Started(details)
        told: Details = () if start.waits is None else (("waits", spelled_out(start.waits)),)
        if start.devices:
            told = (*told, ("devices", start.devices))
        return (*told, ("starved_ns", start.starved_ns)) if start.starved_ns else told
    if kind == Kind.TASK_SUBMITTED and raw[5] is None and (function := function_shown(raw[6])) is not None:
        return (*details, ("function", function))
    if kind in _UNSTARTED and any(name == "waits" for name, _ in details):
        return tuple((name, spelled_out(value) if name == "waits" else value) for name, value in details)
    return details  # type: ignore[no-any-return] # not in short


def spelled_out(waits: Waits) -> dict[str, int]:
    """Return how a wait divides, by cause."""
    return waits if isinstance(waits, dict) else {waits[0]: waits[1]}


def outcome_details(outcome: str, cause: str | None) -> Details:
    """Return the details of an ending; one shared tuple for each pair."""
    key = (outcome, cause)
    details = _OUTCOMES.get(key)
    if details is None:
        details = _OUTCOMES[key] = (("outcome", outcome), ("cause", cause)) if cause else (("outcome", outcome),)
    return details


def cause_details(cause: str) -> Details:
    """Return the details of an end without a start; one shared tuple for each cause."""
    details = _CAUSES.get(cause)
    if details is None:
        details = _CAUSES[cause] = (("cause", cause),)
    return details


def submitted_details(state: str, priority: int, demand: tuple[tuple[str, int], ...], slot: bool) -> Details:
    """Return what a TASK_SUBMITTED tells of a task; that it takes a slot is not said."""
    details: Details = (("state", state), ("priority", priority))
    if demand:
        details = (*details, ("demand", demand))
    return details if slot else (*details, ("slot", False))


_UNSTARTED: Final = (Kind.TASK_CANCELLED, Kind.TASK_DROPPED)  # their waits are told as the task has them

_MAPPINGS: Final = ("demand", "devices", "units")  # details that are pairs here and objects in JSON

SUCCESS_DETAILS: Final[Details] = (("outcome", Outcome.SUCCESS),)  # of a TASK_FINISHED; in short None

_CAUSES: dict[str, Details] = {}
_OUTCOMES: dict[tuple[str, str | None], Details] = {(Outcome.SUCCESS, None): SUCCESS_DETAILS}
