"""The only place where reasons become sentences; those of events are in ``event_words.py``.

The kernel gives structured answers and events; here they get human units and the words that a colleague would use.
What people read elsewhere (reports, logs, the page) takes its words from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final, NamedTuple

from whywait.kernel import reasons as kernel_reasons
from whywait.kernel.devices import Assigned
from whywait.kernel.reasons import (
    Blocking,
    Condition,
    ConditionKind,
    Holder,
    Reason,
    ReasonKind,
    Shortage,
    UnitStanding,
)
from whywait.kernel.state import Cause, Outcome, TaskState, Wait
from whywait.support.notebooks import badge, lines
from whywait.support.units import NS_PER_MS, NS_PER_S, format_ms, format_size, printable
from whywait.support.words import called, counted

_SIZES: Final = ("ram", "vram")
_BYTES: Final = 1_000_000  # a limit from here on is a size
_NOT_RUNNING: Final[dict[str, str]] = {TaskState.PAUSED: "paused", TaskState.DISPOSING: "asked to end"}
STOPPED: Final = "paused (its terminal stopped it)"
_NAMED: Final = 3  # holders, dependencies and tasks ahead that a line names
_STEPS: Final = 4  # of a chain of dependencies that a line tells


class _WaitWords(NamedTuple):
    """A cause of waiting in words."""

    was: str  # what a task that waited was doing
    label: str  # in a table
    head: str  # of a column
    stands: str  # what a task that waits is doing, as others see it


_WAITS: Final[dict[str, _WaitWords]] = {
    Wait.DEPENDENCY: _WaitWords("waiting for dependencies", "dependencies", "deps", "waits for dependencies"),
    Wait.BACKOFF: _WaitWords(
        "backing off before a retry", "backing off to retry", "backoff", "is backing off before a retry"
    ),
    Wait.OVERLAP: _WaitWords(
        "waiting for the previous iteration", "earlier iterations", "overlap", "waits for the previous iteration"
    ),
    Wait.PAUSED: _WaitWords("paused", "paused", "paused", "is paused"),
    Wait.SLOT: _WaitWords("waiting for a slot", "a free slot", "slot", "waits for a slot"),
    Wait.SLOT_HIGHER: _WaitWords(
        "waiting for a slot that a higher priority held", "slot, behind higher", "higher", "waits for a slot"
    ),
    Wait.SCOPE_STATE: _WaitWords(
        "waiting for its scope to be resumed", "the scope's state", "state", "waits for its scope to be resumed"
    ),
    Wait.SCOPE_SLOTS: _WaitWords(
        "waiting for a slot of its scope", "the scope's slots", "scope", "waits for a slot of its scope"
    ),
    Wait.HELD_BACK: _WaitWords(
        "held back by a task that does not fit yet", "held back", "held", "is held back by a task that does not fit yet"
    ),
}
CAUSE_LABELS: Final = {cause: words.label for cause, words in _WAITS.items()}
CAUSE_HEADS: Final = {cause: words.head for cause, words in _WAITS.items()}
# Why a task ended as it did, beside its outcome.
_ENDINGS: Final[dict[str, str]] = {
    Cause.AUTHORITY_BROKEN: "failed: its authority is broken",
    Cause.EXCEPTION: "failed: its body raised an exception",
    Cause.EXIT_CODE: "failed: its command left with an error",
    Cause.WORKER_LOST: "failed: its worker process was lost",
    Cause.OUT_OF_MEMORY: "failed: it used more memory than it had asked for, or than there was",
    Cause.HANDLER: "failed: one of its handlers did",
    Cause.WORKER: "failed: one of its workers did",
    Cause.RUN_TIMEOUT: "was ended: it ran longer than its timeout",
    Cause.CANCELLED: "was cancelled",
    Cause.SCOPE_DISPOSED: "was ended with its scope",
    Cause.PAUSE_TIMEOUT: "was cancelled: it reached no checkpoint to pause at",
    Cause.LOOP_CLOSED: "was ended: the event loop that it belongs to has ended",
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
        return self.waited_ns / NS_PER_S

    @property
    def starts_when(self) -> tuple[str, ...]:
        """What has to happen for the task to start, in words; ``conditions`` is the same as data."""
        return tuple(printable(_CONDITIONS[condition.kind](condition, self)) for condition in self.conditions)

    @property
    def in_short(self) -> str:
        """The first reason of a waiting task, or what the task does, or how it ended, in one line."""
        primary = self.primary_reason
        return printable(_headline(self)) if primary is None else reason_in_words(primary, self)

    def __str__(self) -> str:
        """Say it in a few short lines; what is not printable in a name is escaped."""
        lines = [_headline(self), *(f"  {reason_in_words(reason, self)}" for reason in _primary_first(self))]
        lines += [f"  {told}" for told in map(_stuck, [self] * len(self.reasons), self.reasons) if told]
        if self.state == TaskState.READY:
            lines += _in_line(self)
        if self.conditions:
            lines.append(f"  it starts when {listed(list(self.starts_when))}")
        if self.running_ns is not None:
            lines += _placed(self)
            lines += _blocked(self)
            lines += _waited_for_by(self)
        if self.outcome is not None or not self.reasons:
            if self.outcome is not None and self.devices:
                lines.append(f"  it had {units_in_words(self.devices)}")
            lines += _division(self)
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        """Return it for a notebook."""
        return f"<div>{badge(self.outcome or self.state)}{lines(str(self))}</div>"

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
        return f"{called(why.label)} {ending_in_words(why.outcome, why.cause, why.root)}{attempts}"
    name = called(why.label) + (f" (attempt {why.attempt})" if why.attempt > 1 else "")
    if why.running_ns is not None:
        return f"{name} {_doing(why, why.running_ns)} and holds {_holding(why)}"
    waited = time_in_words(why.waited_ns)
    if why.never:
        return f"{name} has waited {waited} and can never start as things are:"
    return f"{name} has waited {waited}:"


def _doing(why: Why, running_ns: int) -> str:
    if why.ending_ns is not None:
        return f"was asked to end {time_in_words(why.ending_ns)} ago ({why.ending_cause}), its body has not ended yet"
    if why.wants_slot:
        return f"has been running for {time_in_words(running_ns)}, waits for a slot to go on after it blocked,"
    if why.parked_ns is not None:
        return _parked(why, why.parked_ns, running_ns)
    if why.placement is not None and why.placement.lacks is not None:
        engine = why.placement.engine
        room = "other commands to end" if engine == "command" else f"a {engine} that is free"
        return f"was permitted {time_in_words(running_ns)} ago, waits for {room},"
    if why.placement is not None and why.placement.node is None:
        return f"was permitted {time_in_words(running_ns)} ago, waits for {why.placement.engine} to place it,"
    return f"has been running for {time_in_words(running_ns)}"


def _parked(why: Why, parked_ns: int, running_ns: int) -> str:
    parked, started = time_in_words(parked_ns), time_in_words(running_ns)
    if why.stopped:
        return f"has been {STOPPED} for {parked}{_and_wished(why)}, started {started} ago,"
    return f"has been paused for {parked} (somebody has to resume it), started {started} ago,"


def _and_wished(why: kernel_reasons.Why) -> str:
    """Return that a task which is stopped was paused by a verb as well, if it was."""
    return " and by a pause (somebody has to resume it too)" if why.pause_wished else ""


def _placed(why: Why) -> list[str]:
    placement = why.placement
    if placement is None:
        return []
    if placement.node is not None:
        return [f"  {placement.engine} runs it on {placement.node}, process {placement.pid}"]
    if placement.lacks is not None:
        return [f"  the system gives no more of them: {placement.lacks}"]
    return [f"  {placement.engine} {_shortage(row)}" for row in placement.missing]


def _shortage(row: Shortage) -> str:
    need, largest, free = (amount_in_words(row.name, amount) for amount in (row.need, row.largest, row.free))
    if row.need > row.largest:
        return f"has no node for it: it needs {need} {row.name}, and the largest has {largest}"
    return f"has too little free: it needs {need} {row.name}, and the node that comes closest has {free}"


def _holding(why: Why) -> str:
    slot = ["a slot"] if why.slot and not why.lends else []
    units = dict(why.devices)
    asked = dict(why.demand)
    amounts = (
        f"{amount_in_words(name, amount)} {name}{_beyond(name, amount, asked.get(name, 0))}"
        for name, amount in why.holds
        if name not in units
    )
    return listed([*slot, *amounts, *_units_of(why.devices)]) or "nothing"


def _beyond(name: str, amount: int, asked: int) -> str:
    """Return a remark if a task uses more of a resource than it asked for."""
    return f" ({_asked(name, asked)})" if amount > asked else ""


def _asked(name: str, asked: int) -> str:
    return f"more than the {amount_in_words(name, asked)} it asked for" if asked else "asked for none"


def units_in_words(devices: Assigned) -> str:
    """Return the units of a task as a person names them: "gpu 0 and rig a"."""
    return listed(_units_of(devices))


def _units_of(devices: Assigned) -> list[str]:
    """Name units: "gpu 0", "rig a and b"."""
    return [f"{kind} {listed(list(names))}" for kind, names in devices]


def ending_in_words(outcome: str, cause: str | None, root: str | None) -> str:
    """Return how a task ended: "succeeded", "was cancelled"."""
    if outcome == Outcome.SUCCESS:
        return "succeeded"
    if cause == Cause.DEPENDENCY:
        return f"was ended, because {called(root or 'a dependency')} did not succeed"
    if cause == Cause.WORKER_LOST and root is not None:
        return f"was lost, because {root} has ended"
    return _ENDINGS.get(cause or "", f"ended as {outcome} ({cause})")


def _primary_first(why: Why) -> list[Reason]:
    primary = why.primary_reason
    return [] if primary is None else [primary, *(reason for reason in why.reasons if reason is not primary)]


def _in_line(why: Why) -> list[str]:
    lines = []
    ahead = sum(level.tasks for level in why.ahead)
    if ahead:
        first = [name for level in why.ahead for name in level.first]
        count = _count_of(ahead, at_least=why.ahead_at_least)
        lines.append(f"  in line: {count} ahead of it: {_some(first, ahead)}")
    lift = f"; the next lift is in {time_in_words(why.lifted_in_ns)}" if why.lifted_in_ns is not None else ""
    if why.effective_priority != why.priority:
        lines.append(f"  priority: {why.priority}, lifted to {why.effective_priority} by waiting{lift}")
    elif ahead and lift:
        lines.append(f"  priority: {why.priority}{lift}")
    if why.starved:
        by = _some([holder.label for holder in why.starved_by], len(why.starved_by))
        lines.append(
            f"  starved for {time_in_words(why.starved_ns)}: {by} of higher priority {_hold(why.starved_by)} a slot"
        )
    return lines


def _blocked(why: Why) -> list[str]:
    on = why.blocked_on
    if on is None:
        return []
    lends = ", and lends its slot meanwhile" if why.lends else ""
    told = f"  its body waits for the end of {called(on.label)}, which {_standing(on)}{lends}"
    return [f"{told}: neither can go on" if on.running_ns is None and on.held_by == (why.label,) else told]


def _stuck(why: Why, reason: Reason) -> str:
    """Say that none of the tasks that hold what is missing can end, because their bodies wait for others."""
    holders = reason.holders
    if reason.held_by_others or not holders or any(holder.blocked_on is None for holder in holders):
        return ""
    what = _PIECES.get(reason.kind, reason.name)
    if len(holders) == 1 and holders[0].blocked_number == why.number:
        only = f"the only {what}" if reason.limit == 1 else f"that {what}"
        return (
            f"{called(holders[0].label)} holds {only} and waits for the end of {called(why.label)}: neither can go on"
        )
    return f"all that hold it wait for the ends of other tasks: {_some(_waits_of(holders), len(holders))}"


def _waits_of(holders: Sequence[Holder]) -> list[str]:
    return [f"{called(holder.label)} for {called(holder.blocked_on or '')}" for holder in holders]


_PIECES: Final = {ReasonKind.SLOT: "slot", ReasonKind.SCOPE_SLOTS: "slot of its scope"}


def _waited_for_by(why: Why) -> list[str]:
    lines = []
    for blocked in why.blocks:
        count = _count_of(blocked.tasks, at_least=blocked.at_least)
        wait = "waits" if count == "1 task" else "wait"
        names: dict[str, str] = {Wait.SLOT: "slot", Wait.SCOPE_SLOTS: f"slot of scope {blocked.scope}"}
        what = names.get(blocked.name, blocked.name)
        lines.append(f"  {count} {wait} for its {what}: {_some(blocked.first, blocked.tasks)}")
    if why.awaited_by:
        wait = "waits" if why.awaited_by == 1 else "wait"
        awaited_by = counted(why.awaited_by, "task")
        lines.append(f"  {awaited_by} {wait} for its end: {_some(why.awaiting, why.awaited_by)}")
    return lines


def _division(why: Why) -> list[str]:
    if not why.breakdown:
        return ["  it did not wait"]
    attempts = f" over {why.attempt} attempts" if why.attempt > 1 else ""
    lines = [f"  it waited {time_in_words(why.waited_ns)}{attempts}:"]
    for cause, ns in sorted(why.breakdown.items(), key=lambda item: -item[1]):
        lines.append(f"    {time_in_words(ns)} {cause_in_words(cause)}")
    return lines


# Reasons


def reason_in_words(reason: Reason, why: kernel_reasons.Why) -> str:
    """Return one reason as a line."""
    return printable(_REASONS[reason.kind](reason, why))


def _slot_words(reason: Reason) -> str:
    whose = f" of scope {reason.scope}" if reason.kind == ReasonKind.SCOPE_SLOTS else ""
    if not reason.limit:
        return f"slots{whose}: there are none now, nothing more starts"
    taken = "the only one is taken" if reason.limit == 1 else f"all {reason.limit} are taken"
    return f"slots{whose}: {taken}, by {_holders(reason)}"


def _resource_words(reason: Reason) -> str:
    name, limit_is = reason.name, reason.limit or 0
    free_is = max(0, reason.free or 0)  # more may be held than there is: what was not asked for, or a smaller limit
    need, free, limit = (amount_in_words(name, value or 0, limit_is) for value in (reason.need, free_is, limit_is))
    held = f", held by {_holders(reason)}" if reason.holders else ""
    whose = f"{name} of {reason.scope}" if reason.scope else name
    if reason.never and not limit_is:
        return f"{whose}: needs {need}, and there is none here"
    if reason.never:
        return f"{whose}: needs {need}, and the limit is {limit}"
    if (reason.need or 0) > limit_is:
        return f"{whose}: needs {need}, more than the limit of {limit}, so nothing else may run with it{held}"
    return f"{whose}: needs {need}, {free} of {limit} free{held}"


def _device_words(reason: Reason) -> str:
    kind, need, fits, share = reason.name, reason.need or 0, reason.free or 0, reason.share
    wanted = f"{'has' if fits < 2 else 'have'} {format_size(share)} free" if share else _are("free", fits)  # noqa: PLR2004 - plural
    which = f"only {fits} {kind} of the {need} that it needs" if fits else f"no {kind}"
    told = f"{which} {wanted}"
    if need > (reason.limit or 0):
        told = f"it needs {need} {kind}, and there {_are(str(reason.limit or 'none'), reason.limit or 0)}"
    more = [f"and {reason.units_left_out} more"] if reason.units_left_out else []
    units = "; ".join([*(_unit_words(kind, unit) for unit in reason.units), *more])
    return f"{told}: {units}" if units else told


def _are(what: str, count: int) -> str:
    return f"{'is' if count < 2 else 'are'} {what}"  # noqa: PLR2004 - plural


def _unit_words(kind: str, unit: UnitStanding) -> str:
    name = f"{kind} {unit.name}"
    holders = [" ".join([called(each.label), *(f"({told})" for told in _aside(each))]) for each in unit.holders]
    held = f"held by {_some(holders, unit.holders_total)}" if holders else ""
    also_held = f", {held}" if held else ""
    if not unit.present:
        return f"{name} is gone{also_held}"
    if unit.whole or not unit.size:
        return f"{name} is {held or 'free'}"
    free, size = format_size(max(0, unit.free)), format_size(unit.size)
    if free[-2:] == size[-2:]:
        free = free.partition(" ")[0]  # the unit is said once
    return f"{name} has {free} of {size} free{also_held}"


def _dependency_words(reason: Reason) -> str:
    told = "; ".join(f"{called(task.label)} {_standing(task)}" for task in reason.tasks[:_NAMED])
    left = (reason.need or 0) - _NAMED
    more = f"; and {left} more" if left > 0 else ""
    return f"dependencies: {told}{more}"


def _standing(task: Blocking) -> str:
    """Tell where a dependency stands, down to the root: "waits for fetch, which waits for a slot held by train"."""
    told = _own_standing(task, task.chain[0].label if task.chain else None)
    for index, link in enumerate(task.chain[:_STEPS]):
        is_last_told = index == _STEPS - 1
        further = task.chain[index + 1 :]
        told += f", which {_own_standing(link, further[0].label if further else None)}"
        if is_last_told and further:
            steps = len(further) - 1 + task.left_out
            between = f"{steps} more, " if steps else ""
            told += (
                f", and so on ({between}at last {called(further[-1].label)}, which {_own_standing(further[-1], None)})"
            )
    return told


def _own_standing(task: Blocking, waits_for: str | None) -> str:
    if waits_for is not None:
        return f"waits for {called(waits_for)}"
    if task.never:
        return "can never start as things are"
    if task.running_ns is not None:
        ran = time_in_words(task.running_ns)
        verb: dict[str, str] = {
            TaskState.PAUSED: f"is paused, started {ran} ago",
            TaskState.DISPOSING: f"was asked to end after {ran}",
        }
        return verb.get(task.state, f"has been running for {ran}")
    held = f" held by {_some(task.held_by, len(task.held_by))}" if task.held_by else ""
    cause = task.waits_for or ""
    if cause not in _WAITS:
        return f"waits for {cause}{held}"
    return _WAITS[cause].stands + held * (cause in (Wait.SLOT, Wait.SLOT_HIGHER, Wait.SCOPE_SLOTS))


def _held_back_words(reason: Reason) -> str:
    first = reason.tasks[0]
    return f"held back: {called(first.label)} comes first and {_own_standing(first, None)}"


def _backoff_words(reason: Reason, why: kernel_reasons.Why) -> str:
    return f"backing off: the next attempt may start in {time_in_words(max(0, (reason.until_ns or 0) - why.now_ns))}"


def _overlap_words(reason: Reason) -> str:
    told = [f"{called(task.label)} ({time_in_words(task.running_ns or 0)})" for task in reason.tasks]
    return f"overlap: the iteration before it still runs: {_some(told, reason.need or 0)}"


def _paused_words(reason: Reason, why: kernel_reasons.Why) -> str:
    if why.stopped:
        since = time_in_words(why.now_ns - (reason.since_ns or 0))
        return f"{STOPPED} for {since}{_and_wished(why)}: it goes on with fg there"
    return f"paused for {time_in_words(why.now_ns - (reason.since_ns or 0))}: somebody has to resume it"


_REASONS: Final[dict[str, Callable[[Reason, kernel_reasons.Why], str]]] = {
    ReasonKind.SLOT: lambda reason, _: _slot_words(reason),
    ReasonKind.SCOPE_SLOTS: lambda reason, _: _slot_words(reason),
    ReasonKind.RESOURCE: lambda reason, _: _resource_words(reason),
    ReasonKind.DEVICE: lambda reason, _: _device_words(reason),
    ReasonKind.SCOPE_STATE: lambda reason, _: f"scope {reason.scope} is suspended",
    ReasonKind.HELD_BACK: lambda reason, _: _held_back_words(reason),
    ReasonKind.DISPATCH: lambda *_: "nothing stops it",
    ReasonKind.DEPENDENCY: lambda reason, _: _dependency_words(reason),
    ReasonKind.BACKOFF: _backoff_words,
    ReasonKind.OVERLAP: lambda reason, _: _overlap_words(reason),
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
    return f"{amount_in_words(name, condition.amount or 0, limit or 0)} more {name} is free"


def _units_words(condition: Condition) -> str:
    kind, count, share = condition.name, condition.amount or 1, condition.share
    if count == 1:
        return f"a {kind} has {format_size(share)} free" if share else f"a {kind} is free"
    return f"{count} {kind} units have {format_size(share)} free" if share else f"{count} {kind} units are free"


def _resumed_words(why: Why) -> str:
    wished = ["it is resumed"] if why.pause_wished or not why.stopped else []
    return listed([*wished, *(["its terminal lets it go on (fg)"] if why.stopped else [])])


_CONDITIONS: Final[dict[str, Callable[[Condition, Why], str]]] = {
    ConditionKind.FREE: _free_words,
    ConditionKind.UNITS: lambda condition, _: _units_words(condition),
    ConditionKind.ALONE: lambda *_: "nothing else runs",
    ConditionKind.RAISE: lambda condition, _: f"somebody raises the limit of {condition.name}",
    ConditionKind.RESUME_SCOPE: lambda condition, _: f"scope {condition.scope} is resumed",
    ConditionKind.RESUME_TASK: lambda _, why: _resumed_words(why),
    ConditionKind.SUCCEED: lambda condition, _: f"{called(condition.task or '')} has succeeded",
    ConditionKind.END: lambda condition, _: f"{called(condition.task or '')} has ended",
    ConditionKind.START: lambda condition, _: f"{called(condition.task or '')} has started",
    ConditionKind.TIME: lambda condition, why: (
        f"{time_in_words(max(0, (condition.until_ns or 0) - why.now_ns))} have passed"
    ),
    ConditionKind.TURN: lambda *_: "it is its turn",
    ConditionKind.DISPATCH: lambda *_: "the scheduler looks next, which is at once",
}


# Pieces


def cause_in_words(cause: str) -> str:
    """Return what a wait with this cause was spent on: "waiting for a slot"."""
    return _WAITS[cause].was if cause in _WAITS else f"waiting for {cause}"


def _holders(reason: Reason) -> str:
    limit = reason.limit or 0
    named = [
        f"{called(holder.label)} ({', '.join(_share(reason, holder, limit))})" for holder in reason.holders[:_NAMED]
    ]
    others = len(reason.holders) - _NAMED
    if reason.held_by_others:
        return f"{', '.join(named)} and many more"
    return f"{', '.join(named)} and {others} more" if others > 0 else listed(named)


def _share(reason: Reason, holder: Holder, limit: int) -> list[str]:
    """Say how much a holder has, since when, and that it is paused or asked to end."""
    told = [time_in_words(holder.running_ns), *_aside(holder)]
    if reason.kind != ReasonKind.RESOURCE:
        return told
    amount = amount_in_words(reason.name, holder.amount, limit)
    return [amount, *told] if holder.asked is None else [f"uses {amount}", _asked(reason.name, holder.asked), *told]


def _aside(holder: Holder) -> list[str]:
    if holder.stopped:
        return [STOPPED]
    return [_NOT_RUNNING[holder.state]] if holder.state in _NOT_RUNNING else []


def _hold(holders: Sequence[object]) -> str:
    return "holds" if len(holders) == 1 else "hold"


def _some(names: Sequence[str], count: int) -> str:
    """Return the first of the names, and how many there are besides."""
    told = [called(name) for name in names[:_NAMED]]
    return f"{', '.join(told)} and {count - len(told)} more" if count > len(told) else listed(told)


def listed(names: list[str]) -> str:
    """Return names as a sentence has them: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def amount_in_words(resource: str, amount: int, limit: int = 0) -> str:
    """Return an amount of a resource as people read it: ``4.0 GB``, ``3``; ``limit`` is what there is of it in all."""
    return format_size(amount) if is_size(resource, max(limit, amount)) else str(amount)


def is_size(resource: str, amount: float) -> bool:
    """Return whether people read an amount of a resource as bytes: memory is, and so is a large amount of anything."""
    return resource in _SIZES or amount >= _BYTES


def _count_of(tasks: int, *, at_least: bool) -> str:
    return f"at least {counted(tasks, 'task')}" if at_least else counted(tasks, "task")


def time_in_words(ns: int) -> str:
    """Return a time as people say it: "12.3 s"."""
    return format_ms(ns / NS_PER_MS)
