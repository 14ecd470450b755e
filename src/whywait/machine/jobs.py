"""The jobs of the service: accepted, carried out, kept, and taken up again by the next service.

1. A job is checked against the kernel, then written by the store, then submitted to the kernel, in the order of the
   store, and then its client is answered. What was refused is in no kernel, so it cannot run.
2. From then on the store follows the kernel: every event of a job is turned into a change of its row the moment the
   kernel tells it, under the authority's lock, so that the rows change in the order of the kernel's decisions (see
   ``store.py``). An answer to a verb waits for the last of these changes.
3. A start is on the disk before the command runs: a command that may have run is never taken for one that has not. So
   is the wish that a running job ends: no later attempt of it starts.
4. An error that is retried is no end. The kernel tells the end first and the retry right after it, so an end is held
   until the next event, or until the handle is told, whichever comes first.

The authority's lock guards ``_held`` and, of a living job, attempt, waits and watchers. Jobs are checked on the thread
of the server, which alone counts them. ``by_number``, ``_by_id`` and ``_live`` are dicts of which others use single
steps or a copy; a job itself changes as ``store.py`` says.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from whywait.engines.base import Engine
from whywait.errors import ConfigError, MachineError, Rejected, StaleRef, UnknownTask, shown
from whywait.kernel.entering import check_batch
from whywait.kernel.events import Kind, RawEvent, details_of
from whywait.kernel.limits import Retry
from whywait.kernel.model import Submission
from whywait.kernel.state import CAUSES_OF, Cause, Outcome
from whywait.machine import moments
from whywait.machine.asked import check_job, check_name
from whywait.machine.home import Home
from whywait.machine.inside import Permission
from whywait.machine.logs import say_lost
from whywait.machine.rows import Job, environment_key
from whywait.machine.salvage import NAMED
from whywait.machine.store import Store, Ticket
from whywait.runtime.authority import DEFAULT_SCOPE, Authority, core_of
from whywait.runtime.execution import Execution
from whywait.runtime.handle import Handle, new_handle
from whywait.runtime.remember import learned_ram
from whywait.runtime.scope import Scope, open_of
from whywait.runtime.submission import request_for
from whywait.support.digits import number_in
from whywait.support.known import Known
from whywait.support.learned import as_learned
from whywait.trees.system import new_mark

ENDS: Final[dict[str, str]] = {
    Kind.TASK_FINISHED: Outcome.SUCCESS,  # unless the event says otherwise
    Kind.TASK_CANCELLED: Outcome.ABORTED,
    Kind.TASK_DROPPED: Outcome.REJECTED,
}
FACTS: Final = ("root", "exit_signal", "peak_ram", "cpu_ms", "measured")  # of the event of an end
FOR_GOOD: Final = {  # the outcome of a job that was asked to end for a cause after which no attempt follows
    cause: outcome for outcome in (Outcome.ABORTED, Outcome.TIMEOUT) for cause in CAUSES_OF[outcome]
}
NEAR: Final = 10_000  # among more ids no near one is looked for


@dataclass(slots=True, eq=False)
class LiveJob(Known):
    """A job that has not ended, with its task."""

    job: Job
    environment: Mapping[str, str]
    handle: Handle[Any] | None = None
    accepted: Ticket | None = None  # None: a former service has accepted it
    started: Ticket | None = None  # of the present attempt
    attempt: int = 0  # those of former services counted
    waits: dict[str, int] = field(default_factory=dict)  # ns by cause, of all attempts of this service
    watchers: list[Callable[[Job], object]] = field(default_factory=list)  # told of the end when it is on the disk

    def known_as(self, id: str | None = None) -> str:
        """Return what the history calls it: the name that it was given, else its command."""
        del id  # it may be a number
        job = self.job
        return shlex.join(job.command) if job.name == str(job.number) else job.name


class Jobs:
    """All jobs of one home."""

    def __init__(self, authority: Authority, store: Store, home: Home) -> None:
        """Have no job yet; ``engine`` has to be set before there is one."""
        self._authority = authority
        self._core = core_of(authority)
        self._store = store
        self._home = home
        self._held: tuple[LiveJob, dict[str, Any]] | None = None
        self._by_id: dict[tuple[str, str], Job] = {}
        self._live: dict[tuple[str, str], LiveJob] = {}
        self._last_number = store.last_number()
        self._family = home.family
        self._opened: set[str] = set()  # the keys of scopes that were opened for jobs and leases
        self._is_closed = False
        self._untap = self._core.tap(self._note)
        self.engine: Engine
        self.by_number: dict[int, Job] = {}

    def close(self) -> None:
        """Let the store follow the kernel no longer; what is still written is for the next service to take up."""
        self._is_closed = True
        self._untap()

    # Accepting

    def add(self, command: list[str], directory: str, environment: Mapping[str, str], **asked: Any) -> LiveJob:  # noqa: ANN401
        """Accept a job; its ticket says when it may be answered. A refusal raises and leaves nothing behind."""
        scope = asked.pop("scope", None) or DEFAULT_SCOPE
        (live,) = self.add_batch(
            scope, [{**asked, "command": command, "directory": directory, "environment": environment}]
        )
        return live

    def add_batch(self, scope: str, batch: Sequence[Mapping[str, Any]], **of_scope: Any) -> list[LiveJob]:  # noqa: ANN401
        """Accept jobs of one scope, all or none; they may name each other in ``after``.

        ``of_scope``, ``slots`` and ``on_error``, are what the scope is opened with if there is none of that key yet.
        """
        check_name("scope", scope)
        names = {each.get("id") for each in batch} - {None}
        lives = [
            self._draft(number, scope, dict(each), names) for number, each in enumerate(batch, self._last_number + 1)
        ]
        opened = self._open(scope, of_scope)
        try:
            self._check(lives)
        except Rejected as error:
            if len(batch) == 1 and batch[0].get("id") is None:
                told = str(error).replace(f"task {lives[0].job.name!r}", "the job")
                raise type(error)(told, check=error.check, cause=error.cause) from None
            raise
        return self._accept(lives, (scope, of_scope) if opened and of_scope else None)

    def add_again(self, ended: Sequence[Job]) -> list[LiveJob]:
        """Accept ended jobs once more, all or none, under new ids."""
        lives = []
        for number, job in enumerate(ended, self._last_number + 1):
            if job.state != "ended":
                raise MachineError(f"job {job.id} has not ended: it cannot be retried yet")
            awaited = {each: list(filter(self._known, job.options[each])) for each in ("after", "after_ended")}
            environment = self._store.environment(job.environment)
            asked = {**job.options, **awaited, "command": job.command, "directory": job.directory}
            lives.append(self._draft(number, job.scope, {**asked, "environment": environment}, set()))
        self._check(lives)
        noted = [
            (job, {"facts": {**job.facts, "retried_as": live.job.number}})
            for job, live in zip(ended, lives, strict=True)
        ]
        return self._accept(lives, None, noted)

    def _check(self, lives: Iterable[LiveJob]) -> None:
        """Refuse jobs that the kernel would refuse."""
        requests = [self._request(live) for live in lives]
        with self._core.lock:
            check_batch(self._core.kernel, requests, [])

    def _accept(
        self,
        lives: list[LiveJob],
        opened: tuple[str, Mapping[str, Any]] | None,
        noted: Iterable[tuple[Job, Mapping[str, Any]]] = (),
    ) -> list[LiveJob]:
        """Have jobs that the kernel would take written by the store, with one ticket; the kernel has them then."""
        self._live.update(((live.job.scope, live.job.name), live) for live in lives)
        self._last_number += len(lives)
        ticket = self._store.accept(
            [(live.job, json.dumps(live.environment, sort_keys=True)) for live in lives],
            lambda: self._take_in(lives),
            scope=opened,
            noted=noted,
        )
        for live in lives:
            live.accepted = ticket
        ticket.when_done(functools.partial(self._forget_refused, lives))
        return lives

    def _take_in(self, lives: Sequence[LiveJob]) -> None:
        """Let the kernel have jobs that are on the disk; on the thread that wrote them."""
        for live in lives:
            self.by_number[live.job.number] = self._by_id[live.job.scope, live.job.name] = live.job
        if self._is_closed:
            return
        try:
            requests = [self._request(live) for live in lives]
            self._core.command(self._core.kernel.submit_many, requests)
        except Rejected as error:  # a client has closed the scope meanwhile
            for live in lives:
                ticket = self._end(live.job, Outcome.REJECTED, error.cause)
                ticket.when_done(functools.partial(self._ended, live))
        else:
            for live in lives:
                assert live.handle is not None, "it was submitted"
                live.handle.add_done_callback(self._settled)

    def _forget_refused(self, lives: Iterable[LiveJob], ticket: Ticket) -> None:
        """Know nothing of jobs that the store could not keep."""
        if ticket.failure is not None:
            for live in lives:
                self._live.pop((live.job.scope, live.job.name), None)

    def _draft(self, number: int, scope: str, asked: dict[str, Any], mates: set[Any]) -> LiveJob:
        """Check what is asked for; return the job that it makes, which is not accepted yet."""
        command, directory, environment = (asked.pop(each, None) for each in ("command", "directory", "environment"))
        name = asked.pop("id", None)
        check_job(command, directory, environment, asked)
        if name is not None:
            self._check_id(scope, name)
        options = {key: value for key, value in asked.items() if value is not None}
        for each in ("after", "after_ended"):
            given = options.get(each, ())
            ids = (given,) if isinstance(given, str) else given
            within = [f"{scope}/{one}" for one in ids if one in mates]
            options[each] = within + self.awaited(one for one in ids if one not in mates)
        job = Job(
            number=number,
            scope=scope,
            name=name or str(number),
            command=command,
            directory=directory,
            environment=environment_key(json.dumps(environment, sort_keys=True)),
            options=options,
            added=moments.now(),
        )
        live = LiveJob(job, environment)
        if learned := as_learned(options.get("ram")):  # what was accepted stays so, whatever the history says later
            options["ram"] = learned_ram(self._core.history, learned, live.known_as())
        return live

    def awaited(self, ids: Iterable[str]) -> list[str]:
        """Return the full ids of jobs that are awaited; the kernel knows all of them then."""
        ids = [ids] if isinstance(ids, str) else list(ids)
        for each in ids:
            if not isinstance(each, str):
                raise ConfigError(f"{shown(each)} is no id of a job: use a string")
        jobs = [self.find(each) for each in ids]
        for job in jobs:
            if job.state == "ended":
                self._remember(job, job.outcome)
        return [job.full_id for job in jobs]

    # Looking

    def find(self, ref: str, others: Iterable[str] = ()) -> Job:
        """Return a job by its number, its name, or scope/name.

        If there is none, raise UnknownTask with the nearest id, which may be one of the ``others``.
        """
        number = number_in(ref)
        numbered = None if number is None else self.by_number.get(number)
        if numbered is not None:
            return numbered
        scope, _, name = ref.rpartition("/")
        found = [job for (key, each), job in list(self._by_id.items()) if each == name and scope in ("", key)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownTask(f"id {ref!r} is ambiguous: write one of {', '.join(job.full_id for job in found)}")
        from difflib import get_close_matches

        known = [*(job.id for job in list(self.by_number.values())), *others]
        near = get_close_matches(ref, known, 1) if len(known) <= NEAR else []
        raise UnknownTask(f"no job has the id {ref!r}; {f'did you mean {near[0]}?' if near else 'see: whywait ls'}")

    def all(self) -> list[Job]:
        """Return all jobs in the order in which they were accepted."""
        return list(self.by_number.values())

    def live(self, job: Job) -> LiveJob | None:
        """Return the task of a job that has not ended."""
        return self._live.get((job.scope, job.name))

    def handle(self, job: Job) -> Handle[Any]:
        """Return the handle of a job that has not ended; StaleRef if it has."""
        live = self.live(job)
        if live is None or live.handle is None:
            raise StaleRef(f"job {job.id} has ended ({job.outcome})")
        return live.handle

    def has_ended(self, job: Job) -> bool:
        """Return whether a job has ended, on the disk or only so far as the kernel knows."""
        live = self.live(job)
        return live is None or (live.handle is not None and live.handle.done())

    def when_ended(self, job: Job, tell: Callable[[Job], object]) -> None:
        """Call ``tell`` when the end of a job is on the disk; at once if it is."""
        with self._core.lock:
            live = self.live(job)
            if live is not None:
                live.watchers.append(tell)
                return
        tell(job)

    def forget(self, jobs: Iterable[Job]) -> Ticket:
        """Keep ended jobs no longer, nor their logs."""
        jobs = list(jobs)
        for job in jobs:
            if job.state != "ended":
                raise MachineError(f"job {job.id} has not ended: cancel it first")

        def forgotten() -> None:
            for job in jobs:
                with self._core.lock:
                    self.by_number.pop(job.number, None)
                    self._by_id.pop((job.scope, job.name), None)
                if not self._is_closed:
                    self._remember(job, None)
                with suppress(OSError):
                    os.unlink(self._home.log_of(job.number))

        return self._store.forget([job.number for job in jobs], forgotten)

    def kept(self) -> Ticket:
        """Return the ticket of all that has happened to jobs so far."""
        with self._core.lock:
            self._release()
        return self._store.last_change()

    # Starting again

    def take_up(self) -> None:
        """Submit what a former service has not ended, in its old order, before anything starts."""
        environments = self._store.environments()
        requests: list[Submission] = []
        paused: list[Execution] = []
        for job in self._store.jobs():
            self.by_number[job.number] = self._by_id[job.scope, job.name] = job
        orphans = self._orphans()
        self._remove_stray_logs()
        for key, options in self._store.scopes().items():
            with self._refused_as(f"scope {key}"):
                self._open_anew(key, options)
        for job in self.all():
            with self._refused_as(f"job {job.id}"):
                request = None if job.state == "ended" else self._again(job, environments[job.environment])
            if request is not None:
                requests.append(request)
                if job.is_paused or job in orphans:
                    paused.append(request.job)
        awaited = (each for request in requests for each in (*request.after, *request.after_ended))
        self.awaited(dict.fromkeys(each for each in awaited if isinstance(each, str)))

        def act(now: int) -> None:
            self._core.kernel.submit_many(now, requests, kept=True)
            for execution in paused:
                self._core.kernel.pause(now, execution)

        self._core.command(act)
        for live in list(self._live.values()):
            if live.handle is not None:
                live.handle.add_done_callback(self._settled)
        self._store.let_go()

    def _orphans(self) -> set[Job]:
        """Return jobs that await one that a damaged store may have lost, and say so: they would start too soon."""
        if self._store.damaged is None:
            return set()
        waiting = [job for job in self.all() if job.state == "pending"]
        awaited = {job: (*job.options["after"], *job.options["after_ended"]) for job in waiting}
        found = [job for job in waiting if not all(map(self._known, awaited[job]))]
        if found:
            shown = ", ".join(job.id for job in found[:NAMED]) + (" and more" if len(found) > NAMED else "")
            self._store.notice = f"{self._store.notice}; paused, because what they wait for may be lost: {shown}"
        return set(found)

    def _remove_stray_logs(self) -> None:
        """Remove logs whose jobs were forgotten; those of jobs that a damaged store has lost are kept with its copy."""
        for name in os.listdir(self._home.logs):
            number = number_in(name.removesuffix(".log"))
            if number is None or number in self.by_number:
                continue
            with suppress(OSError):
                if self._store.damaged is not None:
                    os.rename(os.path.join(self._home.logs, name), os.path.join(self._store.damaged, name))
                else:
                    os.unlink(os.path.join(self._home.logs, name))

    @contextmanager
    def _refused_as(self, what: str) -> Iterator[None]:
        """Raise that the store is broken if something in it cannot be taken up: it was accepted once."""
        try:
            yield
        except (ConfigError, LookupError, TypeError, ValueError) as error:
            told = error if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            raise self._store.broken(f"{what} cannot be taken up: {told}") from None

    def _again(self, job: Job, environment: Mapping[str, str]) -> Submission | None:
        """Return what the kernel takes for a job that a former service has left; None if that has ended it."""
        if job.state == "running":
            say_lost(self._home.log_of(job.number))
        if job.abort is not None:
            self._end(job, FOR_GOOD[job.abort], job.abort).write_now()
            return None
        if job.state == "running":
            if job.attempt > _retries(job):
                self._end(job, Outcome.ERROR, Cause.WORKER_LOST).write_now()
                return None
            self._store.update(job, state="pending").write_now()
        live = LiveJob(job, environment, attempt=job.attempt)
        request = self._request(live)
        self._live[job.scope, job.name] = live
        return request

    def _request(self, live: LiveJob) -> Submission:
        """Return what the kernel takes for a job."""
        job = live.job
        body: Any = live  # the engine takes no function
        execution = new_handle(self._core, body, (), Context(), self.engine)
        record = open_of(self.scope(job.scope)).record
        live.handle = execution
        return request_for(self._core, record, execution, self._task_options(job))

    def _end(self, job: Job, outcome: str, cause: str) -> Ticket:
        """End a job that the kernel does not have."""
        return self._store.update(job, state="ended", outcome=outcome, cause=cause, ended=moments.now())

    # From the kernel to the store

    def _note(self, raw: RawEvent) -> None:
        """Turn an event of the kernel into a change of the store; under the authority's lock."""
        _, _, kind, scope, _, name, _, _ = raw
        live = self._live.get((scope, name)) if name is not None else None
        if live is None:
            return
        if self._held is not None and not (kind == Kind.TASK_RETRIED and self._held[0] is live):
            self._release(is_awaited=kind == Kind.TASK_STARTED)
        job = live.job
        if kind == Kind.TASK_STARTED:
            details = _details(raw)
            live.attempt += 1
            _add(live.waits, details.get("waits"))
            devices = {kind: list(names) for kind, names in details.get("devices", ())}
            live.started = self._store.update(
                job,
                is_start=True,
                is_routine=True,
                is_awaited=True,  # by the engine
                state="running",
                attempt=live.attempt,
                started=moments.now(),
                facts={"devices": devices},
            )
        elif kind in ENDS:
            details = _details(raw)
            _add(live.waits, details.get("waits"))
            facts = {**job.facts, "waits": live.waits, **{each: details.get(each) for each in FACTS}}
            self._held = (
                live,
                {
                    "is_routine": kind == Kind.TASK_FINISHED,
                    "state": "ended",
                    "ended": moments.now(),
                    "outcome": details.get("outcome", ENDS[kind]),
                    "cause": details.get("cause"),
                    "exit_code": details.get("exit_code"),
                    "facts": {key: value for key, value in facts.items() if value is not None},
                },
            )
        elif kind == Kind.TASK_RETRIED:
            ended, self._held = self._held, None
            exit_code = None if ended is None else ended[1]["exit_code"]
            self._store.update(job, is_routine=True, state="pending", exit_code=exit_code)
        elif kind == Kind.TASK_PAUSED:
            self._store.update(job, is_paused=True)
        elif kind == Kind.TASK_RESUMED:
            self._store.update(job, is_paused=False)
        elif kind == Kind.TASK_ABORT_ASKED and (cause := _details(raw)["cause"]) in FOR_GOOD:
            self._store.update(job, abort=cause)

    def _release(self, *, is_awaited: bool = False) -> None:
        """Have the end of a job written that is not retried; under the authority's lock."""
        held, self._held = self._held, None
        if held is not None:
            live, fields = held
            ticket = self._store.update(live.job, is_awaited=is_awaited, **fields)
            ticket.when_done(lambda ticket: self._ended(live, ticket))

    def _settled(self, handle: Handle[Any]) -> None:
        """Have the end of a job written if no event has come after it; the handle is told of ends that are final."""
        with self._core.lock:
            self._release()
        handle.exception()  # seen

    def _ended(self, live: LiveJob, ticket: Ticket) -> None:
        """Tell the requests that wait for a job that it has ended; on the writer's thread."""
        if ticket.failure is not None:
            return
        job = live.job
        with self._core.lock:
            if self._live.get((job.scope, job.name)) is live:
                del self._live[job.scope, job.name]
            watchers, live.watchers = live.watchers, []
        for tell in watchers:
            tell(job)

    # To the kernel

    def scope(self, key: str) -> Scope:
        """Return the scope of a key, opened when it is first asked for."""
        self._core.forget_scopes()
        return self._authority.get_scope(key) if key in self._core.scopes else self._open_anew(key, {})

    def _open(self, key: str, options: Mapping[str, Any]) -> bool:
        """Open a scope with these options, unless something uses it; return whether it was opened.

        One that nothing uses may be left from jobs that were refused, or forgotten, with options of its own.
        """
        if self._is_used(key):
            return False
        if key in self._core.scopes:
            self._authority.get_scope(key).dispose()
            self._core.forget_scopes()
        self._open_anew(key, options)
        return True

    def _open_anew(self, key: str, options: Mapping[str, Any]) -> Scope:
        self._opened.add(key)
        return self._authority.scope(key, **options)

    def _is_used(self, key: str) -> bool:
        """Return whether a scope has jobs or leases, or is none of those that jobs may be added to."""
        self._core.forget_scopes()
        record = self._core.scopes.get(key)
        if record is not None and (key not in self._opened or record.kernel_scope.tasks):
            return True
        return any(scope == key for scope, _ in (*list(self._by_id), *list(self._live)))

    def new_scope(self, name: str) -> str:
        """Return a name for a scope that nothing uses: this one, or with a number behind it."""
        check_name("scope", name)
        names = (name if number == 1 else f"{name}-{number}" for number in count(1))
        return next(each for each in names if not self._is_used(each))

    def permission(self, scope: Scope, id: str, execution: Any) -> Permission:  # noqa: ANN401 - an EngineTask that is a Task
        """Return what a task that starts is permitted."""
        return Permission(self._core, scope, id, execution, new_mark(self._family))

    def _task_options(self, job: Job) -> Any:  # noqa: ANN401 - TaskOptions
        awaited = {  # others were met, and forgotten
            each: list(filter(self._known, job.options[each])) for each in ("after", "after_ended")
        }
        retry = job.options.get("retry", 0)
        left = max(0, _retries(job) - job.attempt)
        again = Retry(**{**retry, "times": left}) if isinstance(retry, dict) else left
        return {**job.options, **awaited, "id": job.name, "retry": again, "engine": self.engine}

    def _known(self, full_id: str) -> bool:
        """Return whether there is a job of this id, one that is being accepted included."""
        scope, _, name = full_id.partition("/")
        return (scope, name) in self._by_id or (scope, name) in self._live

    def _remember(self, job: Job, outcome: str | None) -> None:
        """Let the kernel know how a job ended, or forget it; it need not have been this kernel that carried it out."""
        scope = open_of(self.scope(job.scope)).kernel_scope
        if scope.ids.get(job.name) != outcome:
            self._core.command(self._core.kernel.remember, scope, job.name, outcome)

    def _check_id(self, scope: str, name: Any) -> None:  # noqa: ANN401 - checked here
        check_name("id", name)
        if name.isdigit():
            raise ConfigError(f"id {name!r} is not allowed: numbers are given by the service; use a name")
        if self._known(f"{scope}/{name}"):
            raise MachineError(
                f"id {name!r} is taken by another job of scope {scope!r}: choose one, or forget that job"
            )


def _retries(job: Job) -> int:
    """Return how often a job is tried again in its life."""
    retry = job.options.get("retry", 0)
    times: int = retry["times"] if isinstance(retry, dict) else retry
    return times


def _details(raw: RawEvent) -> dict[str, Any]:
    return dict(details_of(raw) or ())


def _add(waits: dict[str, int], more: Mapping[str, int] | None) -> None:
    for cause, ns in (more or {}).items():
        waits[cause] = waits.get(cause, 0) + ns
