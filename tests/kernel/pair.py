"""The kernel and the plain model, fed the same commands at the same times and compared after each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import model
from explained import check_why
from whywait.errors import WhywaitError
from whywait.kernel import invariants
from whywait.kernel.events import Event
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, Policy, Retry, make_demand
from whywait.kernel.model import Submission
from whywait.kernel.order import Aging, Strict

MS_NS = 1_000_000


class Sides(NamedTuple):
    """What is one thing for the kernel and another for the model."""

    kernel: Any
    model: Any


def side(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, Sides) else value


class Pair:
    """Commands take plain values; tasks go by number, scopes by their place in `scopes`, periodics likewise.

    Both sides refusing a command for the same reason is agreement too.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.raw_events: list[tuple] = []
        aging, ties = settings["aging"], settings.get("ties", "submission")
        shared = {key: settings[key] for key in ("backfill", "pause_timeout_ns", "starvation_timeout_ns")}
        shared["overdraft"] = settings.get("overdraft", "count")
        self.kernel = Kernel(
            limits=Limits(**settings["limits"]),
            budget=Budget(settings["hard"], settings["soft"], settings.get("devices", {})),
            order=Strict(ties)
            if aging is None
            else Aging(aging["every_ms"] / 1000, aging["boost"], aging["cap"], ties),
            policy=policy_of(settings["policy"]).kernel,
            jitter=lambda: settings["jitter"],
            emit=self.raw_events.append,
            **shared,
        )
        self.model = model.Model(
            limits=model.Limits(**settings["limits"]),
            hard=dict(settings["hard"]),
            soft=settings["soft"],
            devices=settings.get("devices"),
            order=model.Strict(ties)
            if aging is None
            else model.Aging(aging["every_ms"] * MS_NS, aging["boost"], aging["cap"], ties),
            policy=policy_of(settings["policy"]).model,
            jitter=lambda: settings["jitter"],
            numbers=self.numbers(),
            **shared,
        )
        self.now = 0
        self.rested = True
        self.scopes = [Sides(self.kernel.root, self.model.root)]
        self.periodics: list[Sides] = []
        self.tasks: dict[int, Any] = {}
        self.last_seq = 0
        self.events_seen = self.model_events_seen = 0
        self.compare()

    def both(self, verb: str, *what: Any, **more: Any) -> Sides | None:
        """Give a command to both sides; they agree, or the assertion says how they differ."""

        def give(index: int) -> Any:
            given = {name: side(value, index) for name, value in more.items()}
            command = getattr((self.kernel, self.model)[index], verb)
            return command(self.now, *(side(value, index) for value in what), **given)

        result = expected = problem = refusal = None
        try:
            result = give(0)
        except WhywaitError as error:
            problem = error
        try:
            expected = give(1)
        except (model.Refused, model.Illegal) as error:
            refusal = error
        assert (refusal is None) == (problem is None), f"model: {refusal!r}, kernel: {problem!r}"
        if isinstance(refusal, model.Refused):
            assert getattr(problem, "cause", None) == refusal.cause
        if verb == "dispatch":  # what is decided besides starts is looked at as after any other command
            self.kernel.requests += result.requests
            self.kernel.settled += result.settled
            result = result.started
        self.rested = False
        self.register()
        self.compare()
        return None if refusal is not None else Sides(result, expected)

    def numbers(self) -> Iterator[int]:
        """Which numbers tasks get is the kernel's choice, as long as they grow; the model takes them over."""
        last = 0
        for seq, _, kind, _, number, *_ in self.follow_raw_events():
            if kind in {"TASK_SUBMITTED", "TASK_RETRIED"}:
                assert number > last, f"event {seq}"
                last = number
                yield number

    def follow_raw_events(self) -> Iterator[tuple]:
        """Every raw event, as they come."""
        index = 0
        while True:
            assert index < len(self.raw_events), "the model has a task more than the kernel"
            yield self.raw_events[index]
            index += 1

    def model_task(self, number: int) -> model.Task:
        (task,) = [task for task in self.model.tasks if task.number == number]
        return task

    def submit(self, scope: int, name: str | None, **rest: Any) -> None:
        answer = self.both("submit", **self.submission(scope, name, **rest))
        if answer is not None:
            self.tasks[answer.kernel.number] = answer.kernel

    def submit_many(self, batch: list[dict[str, Any]], *, kept: bool = False) -> None:
        fields = [self.submission(**each) for each in batch]
        kinds = (Submission, model.Submission)
        sides = [[kinds[i](**{key: side(value, i) for key, value in each.items()}) for each in fields] for i in (0, 1)]
        answer = self.both("submit_many", Sides(*sides), kept=kept)
        if answer is not None:
            self.tasks.update((task.number, task) for task in answer.kernel)
            assert [task.number for task in answer.kernel] == [task.number for task in answer.model]

    def submission(
        self,
        scope: int,
        name: str | None,
        priority: int,
        demand: dict[str, int],
        after: list[int | str],
        after_ended: list[int | str],
        policy: dict[str, Any] | None,
        slot: bool = True,
    ) -> dict[str, Any]:
        """One task for both sides; a dependency is a number or a name."""

        def found(ids: list[int | str]) -> Sides:
            finders = (self.tasks.__getitem__, self.model_task)
            return Sides(*(tuple(each if isinstance(each, str) else find(each) for each in ids) for find in finders))

        return {
            "scope": self.scopes[scope],
            "name": name,
            "priority": priority,
            "demand": Sides(kernel_demand(demand), demand),
            "after": found(after),
            "after_ended": found(after_ended),
            "policy": policy_of(policy),
            "slot": slot,
        }

    def on_task(self, verb: str, number: int, *rest: Any) -> None:
        """`ended`, `parked`, `measured`, `pause`, `resume`, `stopped`, `cancel`."""
        self.both(verb, Sides(self.tasks[number], self.model_task(number)), *rest)

    def blocked(self, number: int, on: int | None) -> None:
        other = Sides(None if on is None else self.tasks[on], on)
        self.both("blocked", Sides(self.tasks[number], self.model_task(number)), other)

    def open_scope(
        self,
        key: str,
        parent: int,
        limits: dict[str, Any],
        policy: dict[str, Any] | None,
        budget: dict[str, Any] | None = None,
        **rest,
    ) -> None:
        own_limits = Sides(Limits(**limits), model.Limits(**limits))
        own_budget = Sides(*(None if budget is None else kind(**budget) for kind in (Budget, model.Budget)))
        answer = self.both(
            "open_scope", key, self.scopes[parent], own_limits, policy_of(policy), budget=own_budget, **rest
        )
        if answer is not None:
            self.scopes.append(answer)

    def on_scope(self, verb: str, scope: int) -> None:
        """`mount`, `suspend`, `resume_scope`, `dispose`."""
        self.both(verb, self.scopes[scope])

    def set_units(self, kind: str, units: dict[str, int]) -> None:
        self.both("set_units", kind, units)

    def add_periodic(self, scope: int, demand: dict[str, int], policy: dict[str, Any] | None, **rest: Any) -> None:
        needs = Sides(kernel_demand(demand), demand)
        answer = self.both("add_periodic", self.scopes[scope], demand=needs, policy=policy_of(policy), **rest)
        if answer is not None:
            self.periodics.append(answer)

    def set_periodic_enabled(self, index: int, enabled: bool, immediately: bool) -> None:
        self.both("set_periodic_enabled", self.periodics[index], enabled, immediately=immediately)

    def pass_time(self, now: int) -> None:
        """Nobody lets time pass before dispatch has come to rest."""
        if not self.rested:
            self.dispatch()
        self.now = now

    def fire(self) -> None:
        """With a breath for run timeouts, or without one, as the time has it."""
        self.both("fire", self.now // MS_NS % 3 * MS_NS)

    def dispatch(self) -> None:
        """P2: the same starts in order; all answers agree; the next deadline is no later than it must be."""
        answer = self.both("dispatch")
        assert answer is not None
        assert [task.number for task in answer.kernel] == [task.number for task in answer.model]
        self.rested = True
        self.compare()
        deadline = self.model.next_deadline()
        if deadline is not None:
            wanted = self.kernel.next_deadline()
            assert wanted is not None
            assert wanted <= deadline

    def register(self) -> None:
        """Tasks that the kernel made by itself: retries and triggers."""
        for scope in self.kernel.scopes.values():
            self.tasks.update((task.number, task) for task in scope.tasks.values())
        self.tasks.update((task.number, task) for task in self.kernel.settled)
        self.kernel.settled.clear()

    def compare(self) -> None:
        """V3: what has been added to both streams; T1, O1: states; V2, V7: accounts; the engines' orders."""
        self.compare_events()
        for number, task in sorted(self.tasks.items()):
            self.compare_task(task, self.model_task(number))
        for kernel_scope, model_scope in self.scopes:
            assert kernel_scope.state == model_scope.state, f"scope {model_scope.key!r}"
        for kernel_side, model_side in self.periodics:
            assert kernel_side.enabled == model_side.enabled
            assert kernel_side.consecutive_failures == model_side.consecutive_failures
            assert kernel_side.run_count == model_side.run_count
        assert len(self.kernel.requests) == len(self.model.requests)
        for (verb, task), (expected_verb, expected) in zip(self.kernel.requests, self.model.requests, strict=True):
            assert (verb, task) == (expected_verb, self.tasks[expected.number])
        self.kernel.requests.clear()
        self.model.requests.clear()
        assert self.kernel.stats.promotions == self.model.promotions
        if self.rested:
            self.compare_starvation()
        invariants.check(self.kernel, self.now, rested=self.rested)

    def compare_starvation(self) -> None:
        """V2: how many are starved, the longest and the total, attempts of one task added up."""
        tasks = self.model.tasks
        signals = self.kernel.starvation.signals(self.now, self.kernel.lanes_in_use())
        assert signals.now == sum(task.state == "READY" and self.model.outranked(task) for task in tasks)
        assert signals.total_ns == sum(task.starved_ns for task in tasks)
        in_all: dict[int, int] = {}
        for task in tasks:
            in_all[task.number] = in_all.get(task.number, 0) + task.starved_ns
            if task.retried_as is not None:
                in_all[task.retried_as.number] = in_all[task.number]
        assert signals.longest_ns == max(in_all.values(), default=0)

    def compare_events(self) -> None:
        """Reports of starvation may come in any order within an instant, all else is exactly ordered.

        Whether a task that ends within that instant is reported before is open.
        """
        told = self.raw_events[self.events_seen :]
        new = [normalised(raw) for raw in told if raw[2] != "LANE_WAITS"]  # causes are compared task by task
        expected = [agreeing(event, new) for event in self.model.events[self.model_events_seen :]]
        gone = [task.number for task in self.model.tasks if task.state == "DISPOSED"]
        for events in (new, expected):
            events[:] = [event for event in events if not (is_report(event) and event[3] in gone)]
            events.sort(key=lambda event: repr(event) if is_report(event) else "")
        lines = ["events of the kernel", *map(str, new), "of the model", *map(str, expected)]
        assert new == expected, "\n".join(lines)
        for raw in told:
            self.last_seq += 1
            assert raw[0] == self.last_seq
            assert raw[6] is None or raw[6] < self.last_seq
        self.events_seen = len(self.raw_events)
        self.model_events_seen = len(self.model.events)

    def compare_task(self, task: Any, expected: model.Task) -> None:
        assert (task.number == expected.number) == (expected.retried_as is None)
        if expected.retried_as is not None:
            assert expected.number in [attempt.number for attempt in task.earlier]
            return
        facts = ("state", "outcome", "cause", "attempt", "id", "priority")
        assert {fact: getattr(task, fact) for fact in facts} == {fact: getattr(expected, fact) for fact in facts}
        assert dict(task.units) == expected.devices
        if expected.state == "PAUSED":
            assert task.paused_from == expected.paused_from
        if self.rested:
            check_why(self.kernel, self.model, task, expected)


def normalised(raw: tuple) -> tuple:
    """A raw event without its seq and its cause, and without what its kind says already."""
    _, time_ns, kind, scope, number, name, _, _ = raw
    pairs = Event.of(raw).details or ()
    kept = {key: value for key, value in pairs if value not in (None, "aborted")}
    for field in ("demand", "devices", "units"):
        if field in kept:
            kept[field] = dict(kept[field])
    return (time_ns, kind, scope, number, name, kept)


def agreeing(event: tuple, raw: list[tuple]) -> tuple:
    """A model's event in the kernel's form; of several roots it takes the one that the kernel names."""
    *head, details = event
    details = {key: value for key, value in details.items() if value is not None}
    for field in ("after", "after_ended"):
        if field in details:
            details[field] = tuple(dict.fromkeys(other.number for other in details[field]))
    roots = details.pop("roots", None)
    if roots:
        named = [other[5].get("root") for other in raw if list(other[:5]) == head]
        details["root"] = named[0] if named and named[0] in roots else sorted(roots)
    return (*head, details)


def is_report(event: tuple) -> bool:
    return event[1] == "TASK_STARVED"


def kernel_demand(demand: dict[str, int]) -> tuple[tuple[str, int], ...]:
    known = {name: demand.get(name, 0) for name in ("cpu", "ram", "vram")}
    return make_demand(**known, resources={name: amount for name, amount in demand.items() if name not in known})


def policy_of(policy: dict[str, Any] | None) -> Sides:
    """None is inherited."""
    if policy is None:
        return Sides(None, None)
    timeout_ns, max_wait_ns = policy.get("timeout_ns"), policy.get("max_wait_ns")
    retries = Sides(None, None)
    if retry := policy.get("retry"):
        times, backoff_ms, grow = retry["times"], retry["backoff_ms"], retry.get("grow", {})
        plain = model.Retry(times, backoff_ms * MS_NS, tuple(grow.items()))
        retries = Sides(Retry(times, backoff=backoff_ms / 1000, grow=grow), plain)
    kinds = (Policy, model.Policy)
    return Sides(*(kind(timeout_ns, own, max_wait_ns) for kind, own in zip(kinds, retries, strict=True)))
