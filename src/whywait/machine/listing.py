"""Jobs and leases as clients see them: rows for ``ls``, ``wait`` and programs, and the picture for ``status``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict

from whywait.devtools.runs import overview
from whywait.kernel import reasons
from whywait.kernel.limits import Priority
from whywait.kernel.model import Lane
from whywait.kernel.state import Cause, Outcome, TaskState
from whywait.machine import moments
from whywait.machine.moments import Moment, seconds_between
from whywait.machine.rows import Ended, KeptJob, Pending, Running, columns_of
from whywait.observe.explain import Why, ending_in_words, in_words
from whywait.runtime.handle import Handle
from whywait.support.version import __version__

if TYPE_CHECKING:
    from whywait.machine.client_lease import ClientLease
    from whywait.machine.service import Service

FAILED: Final = (Outcome.ERROR, Outcome.TIMEOUT)


class Row(TypedDict):
    """What is told of a job or a permission: in ``ls --json``, ``status --json`` and to programs."""

    kind: Annotated[Literal["job", "lease"], "a job, or the permission of a `do` or of a program"]
    id: Annotated[str, "the number of a job or the name that it was given; the id of a permission"]
    number: Annotated[int | None, "the number of a job"]
    scope: Annotated[str, "its scope"]
    state: Annotated[str, "where it stands, as far as it is on the disk", TaskState]
    stopped: Annotated[bool, "whether its terminal has stopped it"]
    outcome: Annotated[str | None, "how it ended", Outcome]
    cause: Annotated[str | None, "why it ended so"]
    exit_code: Annotated[int | None, "the exit status of its command"]
    exit_signal: Annotated[str | None, "the signal that has ended its command"]
    command: Annotated[list[str] | None, "the command, word by word; null for a block of Python"]
    directory: Annotated[str | None, "the folder in which a job runs"]
    part_of: Annotated[str | None, "the id of the permission that it is a part of"]
    priority: Annotated[int, "its base priority, 0 to 100"]
    attempt: Annotated[int, "which attempt it is, from 1"]
    added: Annotated[float, "when it was accepted, in seconds since 1970"]
    started: Annotated[float | None, "when it started, the last time"]
    ended: Annotated[float | None, "when it ended"]
    waited_s: Annotated[float, "how long it has waited, up to its start or its end"]
    ran_s: Annotated[float | None, "how long it has run; null if it has not, or it is not known until when"]
    devices: Annotated[dict[str, list[str]], "the units of devices that it got"]
    peak_ram: Annotated[int | None, "the most memory that it has used, in bytes"]
    cpu_ms: Annotated[int | None, "the processor time that it has used"]
    measured: Annotated[str | None, "how these two were measured"]
    expected_start_s: Annotated[float | None, "in how many seconds it is expected to start; null: not known"]
    why: Annotated[str | None, "why it waits, what it does, or how it ended if it did not succeed"]
    log: Annotated[str | None, "the file with the output of a job"]


NONE: Final[Row] = {  # of what a row has that has not started, or is no job
    "kind": "job", "id": "", "number": None, "scope": "", "state": "", "stopped": False, "outcome": None, "cause": None,
    "exit_code": None, "exit_signal": None, "command": None, "directory": None, "part_of": None, "priority": 0,
    "attempt": 1, "added": 0.0, "started": None, "ended": None, "waited_s": 0.0, "ran_s": None, "devices": {},
    "peak_ram": None, "cpu_ms": None, "measured": None, "expected_start_s": None, "why": None, "log": None,
}  # fmt: skip


class Reasons:
    """One line for each task that waits or runs: those of a lane wait for the same, so one of them is asked."""

    def __init__(self) -> None:
        """Have asked nothing yet."""
        self._of_lanes: dict[Lane, str] = {}

    def of(self, handle: Handle[Any]) -> str | None:
        """Return why a task waits, or what it does; None if it has ended."""
        if handle.state == TaskState.DISPOSED:
            return None
        if handle.state != TaskState.READY:
            return handle.why().in_short
        known = self._of_lanes.get(handle.lane)
        if known is None:
            known = self._of_lanes[handle.lane] = handle.why().in_short
        return known


def job_row(service: Service, job: KeptJob, known: Reasons) -> Row:
    """Return what is told of a job."""
    kept = columns_of(job.state)
    facts, handle = kept["facts"], job.handle
    if handle is not None and isinstance(job.state, Running) and (now := handle.usage) is not None:
        facts = {**facts, **dict(now.facts())}
    row: Row = {
        **NONE,
        "id": job.id,
        "number": job.number,
        "scope": job.scope,
        "state": job.shown_state,
        "outcome": kept["outcome"],
        "cause": kept["cause"],
        "exit_code": kept["exit_code"],
        "exit_signal": facts.get("exit_signal"),
        "command": job.command,
        "directory": job.directory,
        "priority": Priority.parse(job.options.get("priority", Priority.NORMAL)),
        "attempt": max(1, job.state.attempt),
        "devices": facts.get("devices", {}),
        "why": ending_of(job) if handle is None else end_on_its_way(service, job) or known.of(handle),
        "log": service.home.log_of(job.number),
    }
    _note_times(row, job.added, kept["started"], kept["ended"])
    if kept["cause"] == Cause.WORKER_LOST:  # until when it ran, none knows
        row["ran_s"] = None
    return _with_use(row, facts)


def lease_row(lease: ClientLease, known: Reasons) -> Row:
    """Return what is told of a lease."""
    handle, usage = lease.handle, lease.usage
    row: Row = {
        **NONE,
        "kind": "lease",
        "id": lease.id,
        "scope": lease.scope,
        "state": handle.state,
        "stopped": handle.is_stopped,
        "outcome": handle.outcome,
        "cause": handle.cause,
        "command": lease.command,
        "part_of": None if lease.whole is None else lease.whole.id,
        "priority": handle.priority,
        "devices": {} if lease.permission is None else lease.permission.devices,
        "why": known.of(handle),
    }
    _note_times(row, lease.asked_at, lease.granted_at, None)
    return _with_use(row, {} if usage is None else dict(usage.facts()))


def _note_times(row: Row, added: Moment, began: Moment | None, ended: Moment | None) -> None:
    now = moments.now()
    row["added"] = added.wall
    row["started"] = None if began is None else began.wall
    row["ended"] = None if ended is None else ended.wall
    row["waited_s"] = round(seconds_between(added, began or ended or now), 3)
    row["ran_s"] = None if began is None else round(seconds_between(began, ended or now), 3)


def _with_use(row: Row, facts: Mapping[str, Any]) -> Row:
    row["peak_ram"], row["cpu_ms"] = facts.get("peak_ram"), facts.get("cpu_ms")
    row["measured"] = facts.get("measured")
    return row


def rows(service: Service) -> list[Row]:
    """Return all jobs in the order in which they were accepted, then the living leases."""
    known = Reasons()
    jobs = [job_row(service, job, known) for job in service.jobs.all()]
    return jobs + [lease_row(lease, known) for lease in service.leases.all()]


def picture(service: Service, most: int) -> dict[str, Any]:
    """Return what the machine has and does: of what runs, waits and has ended the first, or last, ``most`` of each."""
    now = overview(service.core)
    jobs, leases, known = service.jobs.all(), service.leases.all(), Reasons()
    ended = [job for job in jobs if isinstance(job.state, Ended)]
    running: list[KeptJob | ClientLease] = [
        *(job for job in jobs if isinstance(job.state, Running)),
        *(lease for lease in leases if lease.is_granted),
    ]
    waiting: list[KeptJob | ClientLease] = [
        *(job for job in jobs if isinstance(job.state, Pending)),
        *(lease for lease in leases if not lease.is_granted),
    ]

    def told(found: Sequence[KeptJob | ClientLease]) -> list[Row]:
        some = found[-most:] if found is ended else found[:most]
        return [job_row(service, each, known) if isinstance(each, KeptJob) else lease_row(each, known) for each in some]

    return {
        "version": __version__,
        "pid": os.getpid(),
        "home": service.home.path,
        "began": service.began.wall,
        "up_s": round(seconds_between(service.began, moments.now()), 3),
        "notices": [each for each in (service.store.notice, service.store.trouble) if each is not None],
        "draining": service.is_draining,
        "slots": now["slots"],
        "budget": now["budget"],
        "devices": now["devices"],
        "running": told(running),
        "running_total": len(running),
        "waiting": told(waiting),
        "waiting_total": len(waiting),
        "ended": told(ended),
        "ended_total": len(ended),
        "failed_total": sum(has_failed(job) for job in ended),
    }


def why_of(service: Service, job: KeptJob) -> Why:
    """Return why a job waits, what it does, or how its wait divided."""
    if not isinstance(job.state, Ended):
        return service.jobs.handle(job).why()
    waits: dict[str, int] = job.state.facts.get("waits", {})
    return in_words(
        reasons.Why(
            id=job.id,
            scope=job.scope,
            number=job.number,
            state=TaskState.DISPOSED,
            priority=Priority.parse(job.options.get("priority", Priority.NORMAL)),
            demand=(),
            now_ns=0,
            waited_ns=sum(waits.values()),
            breakdown=waits,
            starved_ns=0,
            outcome=job.state.outcome,
            cause=job.state.cause,
            root=_root(job.state),
            attempt=max(1, job.state.attempt),
        )
    )


def end_on_its_way(service: Service, job: KeptJob) -> str | None:
    """Return what to say of a job whose end is not on the disk yet; None if it has not ended, or that is there."""
    if isinstance(job.state, Ended) or not isinstance(job.decided, Ended):
        return None
    trouble = service.store.trouble
    when = "" if trouble is None else f" as soon as the disk takes it: {trouble}"
    return f"it has ended, which is written{when}"


def has_failed(job: KeptJob) -> bool:
    """Return whether a job has ended by an error of its own, or by its timeout."""
    return isinstance(job.state, Ended) and job.state.outcome in FAILED


def may_be_retried(job: KeptJob) -> bool:
    """Return whether a job has failed, and was not retried since."""
    return isinstance(job.state, Ended) and has_failed(job) and "retried_as" not in job.state.facts


def ending_of(job: KeptJob) -> str | None:
    """Return how a job ended, in a few words; None if it has succeeded, or not ended."""
    match job.state:
        case Ended(outcome=Outcome.SUCCESS):
            return None
        case Ended(cause=Cause.EXIT_CODE, exit_code=code) if code:
            return f"exit {code}"
        case Ended(outcome=outcome, cause=cause) as ended:
            return ending_in_words(outcome, cause, _root(ended))
    return None


def _root(ended: Ended) -> str | None:
    """Return what made a job end that did not end by itself: a job that it waited for, or the service it ran in."""
    root: str | None = "the service" if ended.cause == Cause.WORKER_LOST else ended.facts.get("root")
    return root
