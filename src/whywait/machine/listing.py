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
from whywait.machine.moments import seconds_between
from whywait.machine.rows import Job
from whywait.observe.explain import Why, ending_in_words, in_words
from whywait.runtime.handle import Handle, execution_of
from whywait.support.usage import Usage
from whywait.support.version import __version__

if TYPE_CHECKING:
    from whywait.machine.client_lease import Lease
    from whywait.machine.service import Service

FAILED: Final = (Outcome.ERROR, Outcome.TIMEOUT)


class Row(TypedDict):
    """What is told of a job or a lease: in ``ls --json``, ``status --json`` and to programs."""

    kind: Annotated[Literal["job", "lease"], "a job, or the lease of a `do` or of a program"]
    id: Annotated[str, "the number of a job or the name that it was given; the id of a lease"]
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
    part_of: Annotated[str | None, "the id of the lease inside of which a lease was asked for"]
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


class _Use(TypedDict):
    peak_ram: int | None
    cpu_ms: int | None
    measured: str | None


class Reasons:
    """One line for each task that waits or runs: those of a lane wait for the same, so one of them is asked."""

    def __init__(self) -> None:
        """Have asked nothing yet."""
        self._of_lanes: dict[Lane, str] = {}

    def of(self, handle: Handle[Any]) -> str | None:
        """Return why a task waits, or what it does; None if it has ended."""
        task = execution_of(handle).task
        if task.state == TaskState.DISPOSED:
            return None
        if task.state != TaskState.READY:
            return handle.why().in_short
        known = self._of_lanes.get(task.lane)
        if known is None:
            known = self._of_lanes[task.lane] = handle.why().in_short
        return known


def job_row(service: Service, job: Job, known: Reasons) -> Row:
    """Return what is told of a job."""
    live = service.jobs.live(job)
    handle = None if live is None else live.handle
    began, ended, now = job.started, job.ended, moments.now()
    is_over = job.state == "ended"
    ran_s = None
    if began is not None and job.state != "pending" and job.cause != Cause.WORKER_LOST:  # until when it ran, none knows
        ran_s = round(seconds_between(began, ended or now), 3)
    waited_until = began if began is not None and job.state != "pending" else ended
    return {
        "kind": "job",
        "id": job.id,
        "number": job.number,
        "scope": job.scope,
        "state": TaskState.DISPOSED if is_over or handle is None else _told_state(job, handle),
        "stopped": False,  # it has no terminal
        "outcome": job.outcome,
        "cause": job.cause,
        "exit_code": job.exit_code,
        "exit_signal": job.facts.get("exit_signal"),
        "command": job.command,
        "directory": job.directory,
        "part_of": None,
        "priority": Priority.parse(job.options.get("priority", Priority.NORMAL)),
        "attempt": max(1, job.attempt),
        "added": job.added.wall,
        "started": None if began is None else began.wall,
        "ended": None if ended is None else ended.wall,
        "waited_s": round(seconds_between(job.added, waited_until or now), 3),
        "ran_s": ran_s,
        "devices": job.facts.get("devices", {}),
        **_use(job.facts, handle.usage if handle is not None and job.state == "running" else None),
        "expected_start_s": None,
        "why": ending_of(job) if is_over or handle is None else end_on_its_way(service, job) or known.of(handle),
        "log": service.home.log_of(job.number),
    }


def lease_row(lease: Lease, known: Reasons) -> Row:
    """Return what is told of a lease."""
    handle, began, now = lease.handle, lease.granted_at, moments.now()
    return {
        "kind": "lease",
        "id": lease.id,
        "number": None,
        "scope": lease.scope,
        "state": handle.state,
        "stopped": execution_of(handle).task.is_stopped,
        "outcome": handle.outcome,
        "cause": handle.cause,
        "exit_code": None,
        "exit_signal": None,
        "command": lease.command,
        "directory": None,
        "part_of": None if lease.whole is None else lease.whole.id,
        "priority": handle.priority,
        "attempt": 1,
        "added": lease.asked_at.wall,
        "started": None if began is None else began.wall,
        "ended": None,
        "waited_s": round(seconds_between(lease.asked_at, began or now), 3),
        "ran_s": None if began is None else round(seconds_between(began, now), 3),
        "devices": {} if lease.permission is None else lease.permission.devices,
        **_use({}, lease.usage),
        "expected_start_s": None,
        "why": known.of(handle),
        "log": None,
    }


def _use(facts: Mapping[str, Any], now: Usage | None) -> _Use:
    """Return what is told of what something has used, up to its end or so far, and how that was measured."""
    told = facts if now is None else dict(now.facts())
    return {"peak_ram": told.get("peak_ram"), "cpu_ms": told.get("cpu_ms"), "measured": told.get("measured")}


def rows(service: Service) -> list[Row]:
    """Return all jobs in the order in which they were accepted, then the living leases."""
    known = Reasons()
    jobs = [job_row(service, job, known) for job in service.jobs.all()]
    return jobs + [lease_row(lease, known) for lease in service.leases.all()]


def picture(service: Service, most: int) -> dict[str, Any]:
    """Return what the machine has and does: of what runs, waits and has ended the first, or last, ``most`` of each."""
    now = overview(service.core)
    jobs, leases, known = service.jobs.all(), service.leases.all(), Reasons()
    ended = [job for job in jobs if job.state == "ended"]
    running: list[Job | Lease] = [
        *(job for job in jobs if job.state == "running"),
        *(lease for lease in leases if lease.is_granted),
    ]
    waiting: list[Job | Lease] = [
        *(job for job in jobs if job.state == "pending"),
        *(lease for lease in leases if not lease.is_granted),
    ]

    def told(found: Sequence[Job | Lease]) -> list[Row]:
        return [
            job_row(service, each, known) if isinstance(each, Job) else lease_row(each, known)
            for each in (found[-most:] if found is ended else found[:most])
        ]

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
        "failed_total": sum(job.outcome in FAILED for job in ended),
    }


def why_of(service: Service, job: Job) -> Why:
    """Return why a job waits, what it does, or how its wait divided."""
    live = service.jobs.live(job)
    if live is not None and live.handle is not None and job.state != "ended":
        return live.handle.why()
    waits: dict[str, int] = job.facts.get("waits", {})
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
            outcome=job.outcome,
            cause=job.cause,
            root=_root(job),
            attempt=max(1, job.attempt),
        )
    )


def end_on_its_way(service: Service, job: Job) -> str | None:
    """Return what to say of a job whose end is not on the disk yet; None if it has not ended, or that is there."""
    if job.state == "ended" or not service.jobs.has_ended(job):
        return None
    trouble = service.store.trouble
    when = "" if trouble is None else f" as soon as the disk takes it: {trouble}"
    return f"it has ended, which is written{when}"


def ending_of(job: Job) -> str | None:
    """Return how a job ended, in a few words; None if it has succeeded, or not ended."""
    if job.outcome is None or job.outcome == Outcome.SUCCESS:
        return None
    if job.cause == Cause.EXIT_CODE and job.exit_code:
        return f"exit {job.exit_code}"
    return ending_in_words(job.outcome, job.cause, _root(job))


def _root(job: Job) -> str | None:
    """Return what made a job end that did not end by itself: a job that it waited for, or the service it ran in."""
    root: str | None = "the service" if job.cause == Cause.WORKER_LOST else job.facts.get("root")
    return root


def _told_state(job: Job, handle: Handle[Any]) -> str:
    """Return where a job stands as far as it is on the disk: what has just ended still runs until that is written."""
    state = handle.state
    if state == TaskState.DISPOSED:
        return TaskState.RUNNING if job.state == "running" else TaskState.READY
    if state == TaskState.RUNNING and job.state != "running":
        return TaskState.READY
    return state
