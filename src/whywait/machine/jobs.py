"""The jobs of the service: accepted, carried out, kept, and taken up again by the next service.

1. A job is checked against the kernel, then written by the store, then submitted to the kernel, in the order of the
   store, and then its client is answered. What was refused is in no kernel, so it cannot run.
2. From then on the store follows the kernel: every event of a job is turned into a change of its row the moment the
   kernel tells it, under the authority's lock, so that the rows change in the order of the kernel's decisions (see
   ``store.py``). An answer to a verb waits for the last of these changes.
3. A start is on the disk before the command runs: a command that may have run is never taken for one that has not. So
   is the wish that a running job ends: no later attempt of it starts.
4. An error after which another attempt follows is no end: the kernel and this room decide that by the same facts.

The authority's lock guards ``decided``, waits and watchers of a job. Jobs are checked on the thread of the server,
which alone counts them. ``by_number``, ``_by_id`` and ``_accepting`` are dicts and a set of which others use single
steps or a copy; ``state`` of a job changes as ``store.py`` says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import replace
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
from whywait.machine.job_engine import say_lost
from whywait.machine.rows import Ended, KeptJob, Pending, Running, State, as_text, environment_key
from whywait.machine.salvage import NAMED, Content
from whywait.machine.store import Store, Ticket
from whywait.runtime.authority import DEFAULT_SCOPE, Authority, core_of
from whywait.runtime.execution import Execution
from whywait.runtime.handle import Handle, new_handle
from whywait.runtime.remember import learned_ram
from whywait.runtime.scope import Scope, open_of
from whywait.runtime.submission import request_for
from whywait.support.digits import number_in
from whywait.support.learned import as_learned

ENDS: Final[dict[str, str]] = {
    Kind.TASK_FINISHED: Outcome.SUCCESS,  # unless the event says otherwise
    Kind.TASK_CANCELLED: Outcome.ABORTED,
    Kind.TASK_DROPPED: Outcome.REJECTED,
}
FACTS: Final = ("root", "exit_signal", "peak_ram", "cpu_ms", "measured")  # of the event of an end
FOR_GOOD: Final = {  # the outcome of a job that was asked to end for a cause after which no attempt follows
    cause: outcome for outcome in (Outcome.ABORTED, Outcome.TIMEOUT) for cause in CAUSES_OF[outcome]
}
AWAITED: Final = ("after", "after_ended")
NEAR: Final = 10_000  # among more ids no near one is looked for


class Jobs:
    """All jobs of one home."""

    def __init__(self, authority: Authority, store: Store, home: Home) -> None:
        """Have no job yet; ``engine`` has to be set before there is one."""
        self._authority = authority
        self._core = core_of(authority)
        self._store = store
        self._home = home
        self._by_id: dict[tuple[str, str], KeptJob] = {}
        self._accepting: set[tuple[str, str]] = set()  # scopes and names of jobs that are not on the disk yet
        self._last_number = store.sealed.last
        self._opened: set[str] = set()  # the keys of scopes that were opened for jobs and leases
        self._is_closed = False
        self._untap = self._core.tap(self._note)
        self.engine: Engine
        self.by_number: dict[int, KeptJob] = {}

    def close(self) -> None:
        """Let the store follow the kernel no longer; what is still written is for the next service to take up."""
        self._is_closed = True
        self._untap()

    # Accepting

    def add(self, command: list[str], directory: str, environment: Mapping[str, str], **asked: Any) -> KeptJob:
        """Accept a job; its ticket says when it may be answered. A refusal raises and leaves nothing behind."""
        scope = asked.pop("scope", None) or DEFAULT_SCOPE
        (job,) = self.add_batch(
            scope, [{**asked, "command": command, "directory": directory, "environment": environment}]
        )
        return job

    def add_batch(self, scope: str, batch: Sequence[Mapping[str, Any]], **of_scope: Any) -> list[KeptJob]:
        """Accept jobs of one scope, all or none; they may name each other in ``after``.

        ``of_scope``, ``slots`` and ``on_error``, are what the scope is opened with if there is none of that key yet.
        """
        check_name("scope", scope)
        names = {each.get("id") for each in batch} - {None}
        jobs = [
            self._draft(number, scope, dict(each), names) for number, each in enumerate(batch, self._last_number + 1)
        ]
        opened = self._open(scope, of_scope)
        try:
            self._check(jobs)
        except Rejected as error:
            if len(batch) == 1 and batch[0].get("id") is None:
                told = str(error).replace(f"task {jobs[0].name!r}", "the job")
                raise type(error)(told, check=error.check, cause=error.cause) from None
            raise
        return self._accept(jobs, (scope, of_scope) if opened and of_scope else None)

    def add_again(self, ended: Sequence[KeptJob]) -> list[KeptJob]:
        """Accept ended jobs once more, all or none, under new ids."""
        jobs, noted = [], []
        for number, old in enumerate(ended, self._last_number + 1):
            if not isinstance(old.state, Ended):
                raise MachineError(f"job {old.id} has not ended: it cannot be retried yet")
            environment = self._store.environment(old.environment)
            asked = {**self._open_options(old), "command": old.command, "directory": old.directory}
            jobs.append(self._draft(number, old.scope, {**asked, "environment": environment}, set()))
            noted.append((old, replace(old.state, facts={**old.state.facts, "retried_as": number})))
        self._check(jobs)
        return self._accept(jobs, None, noted)

    def _check(self, jobs: Iterable[KeptJob]) -> None:
        """Refuse jobs that the kernel would refuse."""
        requests = [self._request(job) for job in jobs]
        with self._core.lock:
            check_batch(self._core.kernel, requests, [])

    def _accept(
        self,
        jobs: list[KeptJob],
        opened: tuple[str, Mapping[str, Any]] | None,
        noted: Sequence[tuple[KeptJob, State]] = (),
    ) -> list[KeptJob]:
        """Have jobs that the kernel would take written by the store, with one ticket; the kernel has them then."""
        ids = {(job.scope, job.name) for job in jobs}
        self._accepting |= ids
        self._last_number += len(jobs)
        ticket = self._store.accept(jobs, lambda: self._take_in(jobs), scope=opened, noted=noted)
        for job in jobs:
            job.accepted = ticket
        ticket.add_done_callback(lambda _: self._accepting.difference_update(ids))  # refused, or taken in
        return jobs

    def _take_in(self, jobs: Sequence[KeptJob]) -> None:
        """Let the kernel have jobs that are on the disk, then clients; on the thread that wrote them."""
        if self._is_closed:
            return
        self._by_id.update(((job.scope, job.name), job) for job in jobs)
        try:
            self._core.command(self._core.kernel.submit_many, [self._request(job) for job in jobs])
        except Rejected as error:  # a client has closed the scope meanwhile
            for job in jobs:
                self._end(job, Ended(Outcome.REJECTED, error.cause, moments.now()))
        self.by_number.update((job.number, job) for job in jobs)

    def _draft(self, number: int, scope: str, asked: dict[str, Any], mates: set[Any]) -> KeptJob:
        """Check what is asked for; return the job that it makes, which is not accepted yet."""
        command, directory, environment = (asked.pop(each, None) for each in ("command", "directory", "environment"))
        name = asked.pop("id", None)
        check_job(command, directory, environment, asked)
        if name is not None:
            self._check_id(scope, name)
        options = {key: value for key, value in asked.items() if value is not None}
        for each in AWAITED:
            given = options.get(each, ())
            ids = (given,) if isinstance(given, str) else given
            within = [f"{scope}/{one}" for one in ids if one in mates]
            options[each] = within + self.awaited(one for one in ids if one not in mates)
        job = KeptJob(
            number=number,
            scope=scope,
            name=name or str(number),
            command=command,
            directory=directory,
            environment=environment_key(as_text(environment)),
            options=options,
            added=moments.now(),
            variables=environment,
        )
        if learned := as_learned(options.get("ram")):  # what was accepted stays so, whatever the history says later
            options["ram"] = learned_ram(self._core.history, learned, job.known_as())
        return job

    def awaited(self, ids: Iterable[str]) -> list[str]:
        """Return the full ids of jobs that are awaited; the kernel knows all of them then."""
        ids = [ids] if isinstance(ids, str) else list(ids)
        for each in ids:
            if not isinstance(each, str):
                raise ConfigError(f"{shown(each)} is no id of a job: use a string")
        jobs = [self.find(each) for each in ids]
        for job in jobs:
            if isinstance(job.state, Ended):
                self._remember(job, job.state.outcome)
        return [job.full_id for job in jobs]

    # Looking

    def find(self, ref: str, others: Iterable[str] = ()) -> KeptJob:
        """Return a job by its number, its name, or scope/name.

        If there is none, raise UnknownTask with the nearest id, which may be one of the ``others``.
        """
        number = number_in(ref)
        numbered = None if number is None else self.by_number.get(number)
        if numbered is not None:
            return numbered
        scope, _, name = ref.rpartition("/")
        found = [job for job in self.all() if job.name == name and scope in ("", job.scope)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownTask(f"id {ref!r} is ambiguous: write one of {', '.join(job.full_id for job in found)}")
        from difflib import get_close_matches

        known = [*(job.id for job in self.all()), *others]
        near = get_close_matches(ref, known, 1) if len(known) <= NEAR else []
        raise UnknownTask(f"no job has the id {ref!r}; {f'did you mean {near[0]}?' if near else 'see: whywait ls'}")

    def all(self) -> list[KeptJob]:
        """Return all jobs in the order in which they were accepted."""
        return list(self.by_number.values())

    def handle(self, job: KeptJob) -> Handle[Any]:
        """Return the handle of a job that has not ended; StaleRef if it has."""
        if job.handle is None:
            assert isinstance(job.state, Ended), "the handle stays until the end is on the disk"
            raise StaleRef(f"job {job.id} has ended ({job.state.outcome})")
        return job.handle

    def end_of(self, job: KeptJob) -> Future[None]:
        """Return what is done when the end of a job is on the disk."""
        end: Future[None] = Future()
        end.set_running_or_notify_cancel()  # it cannot be cancelled
        with self._core.lock:
            if job.handle is not None:
                job.watchers.append(end)
                return end
        end.set_result(None)
        return end

    def forget(self, jobs: Iterable[KeptJob]) -> Ticket:
        """Keep ended jobs no longer, nor their logs."""
        jobs = list(jobs)
        for job in jobs:
            if not isinstance(job.state, Ended):
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

    def keep(self, most: int, age_s: float) -> None:
        """Forget ended jobs that are too many, or too old, the oldest first."""
        now = moments.now()
        ends = [(job, job.state.ended) for job in self.all() if isinstance(job.state, Ended)]
        ends.sort(key=lambda pair: pair[1].wall)
        surplus = len(ends) - most
        old = [
            job for index, (job, end) in enumerate(ends) if index < surplus or moments.seconds_between(end, now) > age_s
        ]
        if old:
            self.forget(old)

    def kept(self) -> Ticket:
        """Return the ticket of all that has happened to jobs so far."""
        return self._store.last

    # Starting again

    def take_up(self) -> None:
        """Submit what a former service has not ended, in its old order, before anything starts."""
        content, self._store.content = self._store.content, Content()
        environments = {key: json.loads(text) for key, text in content.environments.items()}
        requests: list[Submission] = []
        paused: list[Execution] = []
        for job in content.jobs.values():
            self.by_number[job.number] = self._by_id[job.scope, job.name] = job
        orphans = self._orphans()
        self._remove_stray_logs()
        for key, options in content.scopes.items():
            with self._refused_as(f"scope {key}"):
                self._open_anew(key, options)
        for job in self.all():
            with self._refused_as(f"job {job.id}"):
                request = self._again(job, environments)
            if request is not None:
                requests.append(request)
                if job in orphans or (isinstance(job.state, Pending) and job.state.is_paused):
                    paused.append(request.job)
        awaited = (each for request in requests for each in (*request.after, *request.after_ended))
        self.awaited(dict.fromkeys(each for each in awaited if isinstance(each, str)))

        def act(now: int) -> None:
            self._core.kernel.submit_many(now, requests, kept=True)
            for execution in paused:
                self._core.kernel.pause(now, execution)

        self._core.command(act)

    def _orphans(self) -> set[KeptJob]:
        """Return jobs that await one that a damaged store may have lost, and say so: they would start too soon."""
        if self._store.damaged is None:
            return set()
        waiting = [job for job in self.all() if isinstance(job.state, Pending)]
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

    def _again(self, job: KeptJob, environments: Mapping[str, Mapping[str, str]]) -> Submission | None:
        """Return what the kernel takes for a job that a former service has left; None if it has ended."""
        match job.state:
            case Ended():
                return None
            case Running(attempt, started, is_paused, abort, facts):
                say_lost(self._home.log_of(job.number))
                outcome, cause = (Outcome.ERROR, Cause.WORKER_LOST) if abort is None else (FOR_GOOD[abort], abort)
                if abort is not None or attempt > _retries(job):
                    ended = Ended(outcome, cause, moments.now(), attempt, started, facts=facts)
                    self._store.update(job, ended).write_now()
                    return None
                self._store.update(job, Pending(attempt, is_paused)).write_now()
        job.variables = environments[job.environment]
        return self._request(job)

    def _request(self, job: KeptJob) -> Submission:
        """Return what the kernel takes for a job."""
        body: Any = job  # the engine takes no function
        job.handle = new_handle(self._core, body, (), Context(), self.engine)
        job.handle.add_done_callback(Handle.exception)  # seen: the store has it, and nothing is to be logged
        record = open_of(self.scope(job.scope)).record
        return request_for(self._core, record, job.handle, self._task_options(job))

    # From the kernel to the store

    def _note(self, raw: RawEvent) -> None:
        """Turn an event of the kernel into a change of the store; under the authority's lock."""
        _, _, kind, scope, _, name, _, _ = raw
        job = self._by_id.get((scope, name)) if name is not None else None
        if job is None or isinstance(job.decided, Ended):
            return
        was, details = job.decided, dict(details_of(raw) or ())
        match kind:
            case Kind.TASK_STARTED:
                _add(job.waits, details.get("waits"))
                devices = {kind: list(names) for kind, names in details.get("devices", ())}
                job.is_retryable = False
                started = Running(was.attempt + 1, moments.now(), facts={"devices": devices})
                # The engine waits for it.
                job.started = self._store.update(job, started, is_start=True).wait
            case Kind.TASK_FINISHED | Kind.TASK_CANCELLED | Kind.TASK_DROPPED:
                _add(job.waits, details.get("waits"))
                outcome = details.get("outcome", ENDS[kind])
                if outcome == Outcome.ERROR and _is_tried_again(job):
                    state = Pending(was.attempt, exit_code=details.get("exit_code"))
                    self._store.update(job, state, is_routine=True)
                else:
                    self._end(job, _ended(job, outcome, details), is_routine=kind == Kind.TASK_FINISHED)
            case Kind.TASK_RETRIED:
                assert isinstance(was, Pending), "the end of the attempt before was no end of the job"
            case Kind.TASK_PAUSED | Kind.TASK_RESUMED:
                self._store.update(job, replace(was, is_paused=kind == Kind.TASK_PAUSED))
            case Kind.TASK_ABORT_ASKED if details["cause"] in FOR_GOOD:
                assert isinstance(was, Running), "what has not started is not asked to end"
                self._store.update(job, replace(was, abort=details["cause"]))

    def _end(self, job: KeptJob, ended: Ended, *, is_routine: bool = False) -> None:
        """Have the end of a job written, and what waits for that told, on the thread that writes."""

        def tell(ticket: Future[None]) -> None:
            if ticket.exception() is not None:
                return
            with self._core.lock:
                job.handle, job.variables = None, {}
                watchers, job.watchers = job.watchers, []
            for end in watchers:
                end.set_result(None)

        self._store.update(job, ended, is_routine=is_routine).add_done_callback(tell)

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
        return any(scope == key for scope, _ in (*list(self._by_id), *list(self._accepting)))

    def new_scope(self, name: str) -> str:
        """Return a name for a scope that nothing uses: this one, or with a number behind it."""
        check_name("scope", name)
        names = (name if number == 1 else f"{name}-{number}" for number in count(1))
        return next(each for each in names if not self._is_used(each))

    def _task_options(self, job: KeptJob) -> Any:
        retry = job.options.get("retry", 0)
        left = max(0, _retries(job) - job.decided.attempt)
        again = Retry(**{**retry, "times": left}) if isinstance(retry, dict) else left
        return {**self._open_options(job), "id": job.name, "retry": again, "engine": self.engine}

    def _open_options(self, job: KeptJob) -> dict[str, Any]:
        """Return the options of a job without the jobs that it awaited, and that were met and forgotten."""
        return {**job.options, **{each: list(filter(self._known, job.options[each])) for each in AWAITED}}

    def _known(self, full_id: str) -> bool:
        """Return whether there is a job of this id, one that is being accepted included."""
        scope, _, name = full_id.partition("/")
        return (scope, name) in self._by_id or (scope, name) in self._accepting

    def _remember(self, job: KeptJob, outcome: str | None) -> None:
        """Let the kernel know how a job ended, or forget it; it need not have been this kernel that carried it out."""
        scope = open_of(self.scope(job.scope)).kernel_scope
        if scope.ids.get(job.name) != outcome:
            self._core.command(self._core.kernel.remember, scope, job.name, outcome)

    def _check_id(self, scope: str, name: Any) -> None:
        check_name("id", name)
        if name.isdigit():
            raise ConfigError(f"id {name!r} is not allowed: numbers are given by the service; use a name")
        if self._known(f"{scope}/{name}"):
            raise MachineError(
                f"id {name!r} is taken by another job of scope {scope!r}: choose one, or forget that job"
            )


def _retries(job: KeptJob) -> int:
    """Return how often a job is tried again in its life."""
    retry = job.options.get("retry", 0)
    times: int = retry["times"] if isinstance(retry, dict) else retry
    return times


def _is_tried_again(job: KeptJob) -> bool:
    """Return whether another attempt follows one that has failed, as the kernel decides it (T7)."""
    assert job.handle is not None, "it has a task"
    task = job.handle
    retry = task.policy.retry
    return job.is_retryable and retry is not None and task.attempt <= retry.times


def _ended(job: KeptJob, outcome: str, details: Mapping[str, Any]) -> Ended:
    """Return the end of a job, of which the event of the kernel has the details."""
    was = job.decided
    started, facts = (was.started, was.facts) if isinstance(was, Running) else (None, {})
    facts = {**facts, "waits": job.waits, **{each: details.get(each) for each in FACTS}}
    return Ended(
        outcome,
        details.get("cause"),
        moments.now(),
        was.attempt,
        started,
        details.get("exit_code"),
        {key: value for key, value in facts.items() if value is not None},
    )


def _add(waits: dict[str, int], more: Mapping[str, int] | None) -> None:
    for cause, ns in (more or {}).items():
        waits[cause] = waits.get(cause, 0) + ns
