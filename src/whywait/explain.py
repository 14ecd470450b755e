"""The only place where reasons become sentences.

The kernel gives structured answers and events; here they get human units and the words that a colleague would use.
What people read elsewhere (reports, logs, the page) takes its words from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final

from whywait.kernel import reasons as kernel_reasons
from whywait.kernel.events import Event, Kind
from whywait.kernel.reasons import Blocking, Condition, ConditionKind, Holder, Reason, ReasonKind, Shortage
from whywait.kernel.state import Cause, Outcome, TaskState, Wait
from whywait.settings import NS
from whywait.units import NS_PER_MS, format_ms, format_size

_SIZES: Final = ("ram", "vram")
_BYTES: Final = 1_000_000  # a limit from here on is a size
_NOT_RUNNING: Final = {TaskState.PAUSED: ", parked", TaskState.DISPOSING: ", asked to end"}
_NAMED: Final = 3  # holders, dependencies and tasks ahead that a line names
_STEPS: Final = 4  # of a chain of dependencies that a line tells

# What a task that waited can say of each part of its wait.
CAUSES: Final = {
    Wait.DEPENDENCY: "waiting for dependencies",
    Wait.BACKOFF: "backing off before a retry",
    Wait.OVERLAP: "waiting for the previous iteration",
    Wait.PAUSED: "paused",
    Wait.SLOT: "waiting for a slot",
    Wait.SLOT_HIGHER: "waiting for a slot that a higher priority held",
    Wait.SCOPE_STATE: "waiting for its scope to be resumed",
    Wait.SCOPE_SLOTS: "waiting for a slot of its scope",
    Wait.HELD_BACK: "held back by a task that does not fit yet",
}
# The same as labels of a table, and as heads of its columns.
CAUSE_LABELS: Final = {
    Wait.DEPENDENCY: "dependencies",
    Wait.BACKOFF: "backing off to retry",
    Wait.OVERLAP: "earlier iterations",
    Wait.PAUSED: "paused",
    Wait.SLOT: "a free slot",
    Wait.SLOT_HIGHER: "slot, behind higher",
    Wait.SCOPE_STATE: "the scope's state",
    Wait.SCOPE_SLOTS: "the scope's slots",
    Wait.HELD_BACK: "held back",
}
CAUSE_HEADS: Final = {
    Wait.DEPENDENCY: "deps",
    Wait.SLOT_HIGHER: "higher",
    Wait.SCOPE_STATE: "state",
    Wait.SCOPE_SLOTS: "scope",
    Wait.HELD_BACK: "held",
}
# Why a task ended as it did, beside its outcome.
_ENDINGS: Final = {
    Cause.EXCEPTION: "failed: its body raised an exception",
    Cause.EXIT_CODE: "failed: its command left with an error",
    Cause.WORKER_LOST: "failed: its worker process was lost",
    Cause.HANDLER: "failed: one of its handlers did",
    Cause.WORKER: "failed: one of its workers did",
    Cause.RUN_TIMEOUT: "was stopped: it ran longer than its timeout",
    Cause.CANCELLED: "was cancelled",
    Cause.SCOPE_DISPOSED: "was ended with its scope",
    Cause.PAUSE_TIMEOUT: "was cancelled: it reached no checkpoint to pause at",
    Cause.MAX_WAIT: "was dropped: it had waited as long as it may",
    Cause.DISPLACED: "was dropped: a higher priority needed its place in the queue",
    Cause.PERIODIC_OFF: "was dropped: its periodic was switched off",
}


class Why(kernel_reasons.Why):
    """Why a task waits, what it does, or how its wait divided; ``str()`` says it in words."""

    __slots__ = ()

    @property
    def waited(self) -> float:
        """How long the task has waited in all, over all attempts, in seconds."""
        return self.waited_ns / NS

    @property
    def starts_when(self) -> tuple[str, ...]:
        """What has to happen for the task to start, in words; ``conditions`` is the same as data."""
        return tuple(_CONDITIONS[condition.kind](condition, self) for condition in self.conditions)

    def __str__(self) -> str:
        """Say it in a few short lines."""
        lines = [_headline(self), *(f"  {reason_in_words(reason, self)}" for reason in _primary_first(self))]
        if self.state == TaskState.READY:
            lines += _in_line(self)
        if self.conditions:
            lines.append(f"  it starts when {_listed(list(self.starts_when))}")
        if self.running_ns is not None:
            lines += _placed(self)
            lines += _waited_for_by(self)
        if self.outcome is not None or not self.reasons:
            lines += _division(self)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {**super().to_dict(), "starts_when": list(self.starts_when)}


def in_words(why: kernel_reasons.Why) -> Why:
    """Return the kernel's answer with words."""
    return Why(**{each.name: getattr(why, each.name) for each in fields(kernel_reasons.Why)})


# A task as a whole


def _headline(why: Why) -> str:
    if why.outcome is not None:
        attempts = f" in attempt {why.attempt}" if why.attempt > 1 else ""
        return f"{why.id} {_ending(why.outcome, why.cause, why.root)}{attempts}"
    name = f"{why.id} (attempt {why.attempt})" if why.attempt > 1 else why.id
    if why.running_ns is not None:
        return f"{name} {_doing(why, why.running_ns)} and holds {_holding(why)}"
    waited = _time(why.waited_ns)
    if why.never:
        return f"{name} has waited {waited} and can never start as things are:"
    return f"{name} has waited {waited}:"


def _doing(why: Why, running_ns: int) -> str:
    if why.ending_ns is not None:
        return f"was asked to end {_time(why.ending_ns)} ago ({why.ending_cause}), its body has not ended yet"
    if why.parked_ns is not None:
        parked, started = _time(why.parked_ns), _time(running_ns)
        return f"has been parked for {parked} (somebody has to resume it), started {started} ago,"
    if why.placement is not None and why.placement.node is None:
        return f"was permitted {_time(running_ns)} ago, waits for {why.placement.engine} to place it,"
    return f"has been running for {_time(running_ns)}"


def _placed(why: Why) -> list[str]:
    placement = why.placement
    if placement is None:
        return []
    if placement.node is not None:
        return [f"  {placement.engine} runs it on {placement.node}, process {placement.pid}"]
    return [f"  {placement.engine} {_shortage(row)}" for row in placement.missing]


def _shortage(row: Shortage) -> str:
    need, largest, free = (_amount(row.name, amount) for amount in (row.need, row.largest, row.free))
    if row.need > row.largest:
        return f"has no node for it: it needs {need} {row.name}, and the largest has {largest}"
    return f"has too little free: it needs {need} {row.name}, and the node that comes closest has {free}"


def _holding(why: Why) -> str:
    return _listed(["a slot", *(f"{_amount(name, amount)} {name}" for name, amount in why.holds)])


def _ending(outcome: str, cause: str | None, root: str | None) -> str:
    if outcome == Outcome.SUCCESS:
        return "succeeded"
    if cause == Cause.DEPENDENCY:
        return f"was ended, because {root or 'a dependency'} did not succeed"
    return _ENDINGS.get(cause or "", f"ended as {outcome} ({cause})")


def _primary_first(why: Why) -> list[Reason]:
    primary = why.primary_reason
    return [] if primary is None else [primary, *(reason for reason in why.reasons if reason is not primary)]


def _in_line(why: Why) -> list[str]:
    lines = []
    ahead = sum(level.tasks for level in why.ahead)
    if ahead:
        first = [name for level in why.ahead for name in level.first]
        count = f"at least {_tasks(ahead)}" if why.ahead_at_least else _tasks(ahead)
        lines.append(f"  in line: {count} ahead of it: {_some(first, ahead)}")
    lift = f"; the next lift is in {_time(why.lifted_in_ns)}" if why.lifted_in_ns is not None else ""
    if why.effective_priority != why.priority:
        lines.append(f"  priority: {why.priority}, lifted to {why.effective_priority} by waiting{lift}")
    elif ahead and lift:
        lines.append(f"  priority: {why.priority}{lift}")
    if why.starved:
        by = _some([holder.id for holder in why.starved_by], len(why.starved_by))
        lines.append(f"  starved for {_time(why.starved_ns)}: {by} of higher priority {_hold(why.starved_by)} a slot")
    return lines


def _waited_for_by(why: Why) -> list[str]:
    lines = []
    for blocked in why.blocks:
        count = f"at least {_tasks(blocked.tasks)}" if blocked.at_least else _tasks(blocked.tasks)
        wait = "waits" if count == "1 task" else "wait"
        what = {Wait.SLOT: "slot", Wait.SCOPE_SLOTS: f"slot of scope {blocked.scope}"}.get(blocked.name, blocked.name)
        lines.append(f"  {count} {wait} for its {what}: {_some(blocked.first, blocked.tasks)}")
    if why.awaited_by:
        wait = "waits" if why.awaited_by == 1 else "wait"
        lines.append(f"  {_tasks(why.awaited_by)} {wait} for its end: {_some(why.awaiting, why.awaited_by)}")
    return lines


def _division(why: Why) -> list[str]:
    if not why.breakdown:
        return ["  it did not wait"]
    attempts = f" over {why.attempt} attempts" if why.attempt > 1 else ""
    lines = [f"  it waited {_time(why.waited_ns)}{attempts}:"]
    for cause, ns in sorted(why.breakdown.items(), key=lambda item: -item[1]):
        lines.append(f"    {_time(ns)} {_cause_words(cause)}")
    return lines


# Reasons


def reason_in_words(reason: Reason, why: kernel_reasons.Why) -> str:
    """Return one reason as a line."""
    return _REASONS[reason.kind](reason, why)


def _slot_words(reason: Reason, why: kernel_reasons.Why) -> str:  # noqa: ARG001 - one form for all reasons
    whose = f" of scope {reason.scope}" if reason.kind == ReasonKind.SCOPE_SLOTS else ""
    taken = "the only one is taken" if reason.limit == 1 else f"all {reason.limit} are taken"
    return f"slots{whose}: {taken}, by {_holders(reason)}"


def _resource_words(reason: Reason, why: kernel_reasons.Why) -> str:  # noqa: ARG001 - one form for all reasons
    name, limit_is = reason.name, reason.limit or 0
    need, free, limit = (_amount(name, value or 0, limit_is) for value in (reason.need, reason.free, limit_is))
    held = f", held by {_holders(reason)}" if reason.holders else ""
    if reason.never:
        return f"{name}: needs {need}, and the limit is {limit}"
    if (reason.need or 0) > limit_is:
        return f"{name}: needs {need}, more than the limit of {limit}, so nothing else may run with it{held}"
    return f"{name}: needs {need}, {free} of {limit} free{held}"


def _dependency_words(reason: Reason, why: kernel_reasons.Why) -> str:  # noqa: ARG001 - one form for all reasons
    told = "; ".join(f"{task.id} {_standing(task)}" for task in reason.tasks[:_NAMED])
    left = (reason.need or 0) - _NAMED
    more = f"; and {left} more" if left > 0 else ""
    return f"dependencies: {told}{more}"


def _standing(task: Blocking) -> str:
    """Tell where a dependency stands, down to the root: "waits for fetch, which waits for a slot held by train"."""
    told = _own_standing(task, task.chain[0].id if task.chain else None)
    for index, link in enumerate(task.chain[:_STEPS]):
        is_last_told = index == _STEPS - 1
        further = task.chain[index + 1 :]
        told += f", which {_own_standing(link, further[0].id if further else None)}"
        if is_last_told and further:
            steps = len(further) - 1 + task.left_out
            between = f"{steps} more, " if steps else ""
            told += f", and so on ({between}at last {further[-1].id}, which {_own_standing(further[-1], None)})"
    return told


def _own_standing(task: Blocking, waits_for: str | None) -> str:
    if waits_for is not None:
        return f"waits for {waits_for}"
    if task.never:
        return "can never start as things are"
    if task.running_ns is not None:
        verb = {TaskState.PAUSED: "is parked since its start", TaskState.DISPOSING: "was asked to end, having run"}
        return f"{verb.get(task.state, 'has been running for')} {_time(task.running_ns)}"
    held = f" held by {_some(task.held_by, len(task.held_by))}" if task.held_by else ""
    cause = task.waits_for or ""
    what = {
        Wait.SLOT: f"waits for a slot{held}",
        Wait.SLOT_HIGHER: f"waits for a slot{held}",
        Wait.SCOPE_SLOTS: f"waits for a slot of its scope{held}",
        Wait.SCOPE_STATE: "waits for its scope to be resumed",
        Wait.HELD_BACK: "is held back by a task that does not fit yet",
        Wait.PAUSED: "is paused",
        Wait.BACKOFF: "is backing off before a retry",
        Wait.OVERLAP: "waits for the previous iteration",
        Wait.DEPENDENCY: "waits for dependencies",
    }
    return what.get(cause, f"waits for {cause}{held}")


def _held_back_words(reason: Reason, why: kernel_reasons.Why) -> str:  # noqa: ARG001 - one form for all reasons
    first = reason.tasks[0]
    return f"held back: {first.id} comes first and {_own_standing(first, None)}"


def _backoff_words(reason: Reason, why: kernel_reasons.Why) -> str:
    return f"backing off: the next attempt may start in {_time(max(0, (reason.until_ns or 0) - why.now_ns))}"


def _overlap_words(reason: Reason, why: kernel_reasons.Why) -> str:  # noqa: ARG001 - one form for all reasons
    told = [f"{task.id} ({_time(task.running_ns or 0)})" for task in reason.tasks]
    return f"overlap: the iteration before it still runs: {_some(told, reason.need or 0)}"


def _paused_words(reason: Reason, why: kernel_reasons.Why) -> str:
    return f"paused for {_time(why.now_ns - (reason.since_ns or 0))}: somebody has to resume it"


_REASONS: Final[dict[str, Callable[[Reason, kernel_reasons.Why], str]]] = {
    ReasonKind.SLOT: _slot_words,
    ReasonKind.SCOPE_SLOTS: _slot_words,
    ReasonKind.RESOURCE: _resource_words,
    ReasonKind.SCOPE_STATE: lambda reason, _: f"scope {reason.scope} is suspended",
    ReasonKind.HELD_BACK: _held_back_words,
    ReasonKind.DISPATCH: lambda *_: "nothing stops it",
    ReasonKind.DEPENDENCY: _dependency_words,
    ReasonKind.BACKOFF: _backoff_words,
    ReasonKind.OVERLAP: _overlap_words,
    ReasonKind.PAUSED: _paused_words,
}


# Conditions


def _free_words(condition: Condition, why: Why) -> str:
    name = condition.name or ""
    if name == Wait.SLOT:
        return "a slot is free"
    if name == Wait.SCOPE_SLOTS:
        return f"a slot of scope {condition.scope} is free"
    limit = next((reason.limit for reason in why.reasons if reason.name == name), None)
    return f"{_amount(name, condition.amount or 0, limit or 0)} more {name} is free"


_CONDITIONS: Final[dict[str, Callable[[Condition, Why], str]]] = {
    ConditionKind.FREE: _free_words,
    ConditionKind.ALONE: lambda *_: "nothing else runs",
    ConditionKind.RAISE: lambda condition, _: f"somebody raises the limit of {condition.name}",
    ConditionKind.RESUME_SCOPE: lambda condition, _: f"scope {condition.scope} is resumed",
    ConditionKind.RESUME_TASK: lambda *_: "it is resumed",
    ConditionKind.SUCCEED: lambda condition, _: f"{condition.task} has succeeded",
    ConditionKind.END: lambda condition, _: f"{condition.task} has ended",
    ConditionKind.START: lambda condition, _: f"{condition.task} has started",
    ConditionKind.TIME: lambda condition, why: f"{_time(max(0, (condition.until_ns or 0) - why.now_ns))} have passed",
    ConditionKind.TURN: lambda *_: "it is its turn",
    ConditionKind.DISPATCH: lambda *_: "the scheduler looks next, which is at once",
}


# Events

_LIMITS: Final = {Wait.SLOT: "slots"}


def event_in_words(event: Event) -> str:
    """Return what an event tells, in one line."""
    details = dict(event.details or ())
    subject = event.id or f"scope {event.scope or '(the authority)'}"
    words = _EVENTS.get(event.kind)
    if words is not None:
        return words(subject, details)
    told = ", ".join(f"{key} {value}" for key, value in details.items())
    return f"{subject}: {event.kind.lower().replace('_', ' ')}" + (f" ({told})" if told else "")


def _lane_words(subject: str, details: dict[str, Any]) -> str:
    needs = ", ".join(f"{_amount(name, amount)} {name}" for name, amount in details.get("demand", ()))
    who = f"tasks of priority {details['priority']} in {subject}" + (f" that need {needs}" if needs else "")
    cause = details["cause"]
    if cause == Wait.SLOT:
        return f"{who}: " + (
            "no gate is closed any more, they wait for their turn" if details["tasks"] else "none waits"
        )
    behind = ", and others wait behind them" if details.get("holds_back") else ""
    return f"{who}: {_cause_words(cause)}{behind}"


def _started_words(subject: str, details: dict[str, Any]) -> str:
    waits = details.get("waits")
    if not waits:
        return f"{subject} started at once"
    parts = [f"{_time(ns)} {_cause_words(cause)}" for cause, ns in sorted(waits.items(), key=lambda item: -item[1])]
    return f"{subject} started after {_time(sum(waits.values()))}: {', '.join(parts)}"


def _ended_words(subject: str, details: dict[str, Any]) -> str:
    return f"{subject} {_ending(details.get('outcome', Outcome.ABORTED), details.get('cause'), details.get('root'))}"


_EVENTS: Final[dict[str, Callable[[str, dict[str, Any]], str]]] = {
    Kind.LANE_WAITS: _lane_words,
    Kind.TASK_SUBMITTED: lambda who, details: f"{who} was submitted and is {details['state']}",
    Kind.TASK_READY: lambda who, _: f"{who} is READY: nothing is left to wait for but its turn",
    Kind.TASK_STARTED: _started_words,
    Kind.TASK_PAUSE_ASKED: lambda who, _: f"{who} is asked to pause",
    Kind.TASK_PAUSED: lambda who, details: f"{who} is paused, it was {details['from']}",
    Kind.TASK_RESUMED: lambda who, details: f"{who} is resumed and {details['to']}",
    Kind.TASK_ABORT_ASKED: lambda who, details: f"{who} is asked to end ({details['cause']})",
    Kind.TASK_FINISHED: _ended_words,
    Kind.TASK_CANCELLED: _ended_words,
    Kind.TASK_DROPPED: lambda who, details: f"{who} was dropped ({details['cause']})",
    Kind.TASK_REJECTED: lambda who, details: f"{who} was refused ({details['cause']})",
    Kind.TASK_RETRIED: lambda who, details: f"{who} failed and is tried again, attempt {details['attempt']}",
    Kind.TASK_STARVED: lambda who, details: (
        f"{who} is starved: a higher priority has held a slot for {_time(details['starved_ns'])} of its wait"
    ),
    Kind.TASK_PLACED: lambda who, details: (
        f"{who} was placed by {details['engine']} on {details['machine']} ({details['node']}), process {details['pid']}"
    ),
    Kind.LIMIT_CHANGED: lambda who, details: f"there are {_amount(who, details['limit'])} {_LIMITS.get(who, who)} now",
    Kind.SCOPE_CREATED: lambda who, _: f"{who} was opened",
    Kind.SCOPE_ATTACHED: lambda who, _: f"{who} accepts tasks",
    Kind.SCOPE_RUNNING: lambda who, _: f"{who} runs its first task",
    Kind.SCOPE_SUSPENDED: lambda who, _: f"{who} is suspended: nothing of it starts",
    Kind.SCOPE_RESUMED: lambda who, _: f"{who} is resumed",
    Kind.SCOPE_DISPOSING: lambda who, _: f"{who} is being disposed",
    Kind.SCOPE_DISPOSED: lambda who, _: f"{who} is disposed",
    Kind.PERIODIC_ADDED: lambda who, details: f"periodic {who} was added, every {_time(details['interval_ns'])}",
    Kind.PERIODIC_TICK: lambda who, _: f"periodic {who} ticked",
    Kind.PERIODIC_SKIPPED: lambda who, details: f"periodic {who} dropped a tick ({details['code']})",
    Kind.PERIODIC_ENABLED: lambda who, _: f"periodic {who} is on",
    Kind.PERIODIC_DISABLED: lambda who, details: f"periodic {who} is off ({details['reason']})",
}


# Pieces


def _cause_words(cause: str) -> str:
    return CAUSES.get(cause, f"waiting for {cause}")


def _holders(reason: Reason) -> str:
    limit = reason.limit or 0
    named = [
        f"{holder.id} ({_share(reason, holder, limit)}{_NOT_RUNNING.get(holder.state, '')})"
        for holder in reason.holders[:_NAMED]
    ]
    others = len(reason.holders) - _NAMED
    if reason.held_by_others:
        return f"{', '.join(named)} and many more"
    return f"{', '.join(named)} and {others} more" if others > 0 else _listed(named)


def _share(reason: Reason, holder: Holder, limit: int) -> str:
    running = _time(holder.running_ns)
    if reason.kind != ReasonKind.RESOURCE:
        return running
    return f"{_amount(reason.name, holder.amount, limit)}, {running}"


def _hold(holders: Sequence[object]) -> str:
    return "holds" if len(holders) == 1 else "hold"


def _some(names: Sequence[str], count: int) -> str:
    """Return the first of the names, and how many there are besides."""
    if count > len(names[:_NAMED]):
        return f"{', '.join(names[:_NAMED])} and {count - len(names[:_NAMED])} more"
    return _listed(list(names[:_NAMED]))


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _amount(resource: str, amount: int, limit: int = 0) -> str:
    return format_size(amount) if is_size(resource, max(limit, amount)) else str(amount)


def is_size(resource: str, amount: float) -> bool:
    """Return whether people read an amount of a resource as bytes: memory is, and so is a large amount of anything."""
    return resource in _SIZES or amount >= _BYTES


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"


def _time(ns: int) -> str:
    return format_ms(ns / NS_PER_MS)
