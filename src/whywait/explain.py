"""The only place where reasons become sentences.

The kernel gives a structured :class:`whywait.kernel.why.Why`; this one adds human units and ``str(why)``, which says
what a colleague would say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from whywait.kernel import why as kernel_why
from whywait.kernel.state import Outcome, TaskState, Wait
from whywait.kernel.why import Holder, Reason, ReasonKind
from whywait.settings import NS
from whywait.units import NS_PER_MS, format_ms, format_size

_SIZES: Final = ("ram", "vram")
_NOT_RUNNING: Final = {TaskState.PAUSED: "parked", TaskState.DISPOSING: "should end"}
_NAMED: Final = 3  # holders, dependencies and tasks ahead that a line names

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


class Why(kernel_why.Why):
    """Why a task waits, what it does, or how its wait divided; ``str()`` says it in words."""

    __slots__ = ()

    @property
    def waited(self) -> float:
        """How long the task has waited in all, in seconds."""
        return self.waited_ns / NS

    @property
    def starts_when(self) -> tuple[str, ...]:
        """What has to happen for the task to start, in words."""
        conditions = [_condition(reason, self) for reason in self.reasons]
        if self.ahead and self.state == TaskState.READY:
            count = sum(level.tasks for level in self.ahead)
            conditions.append(f"{_tasks(count)} ahead of it in order start or leave, unless they do not fit")
        return tuple(conditions)

    def __str__(self) -> str:
        """Say it in a few short lines."""
        lines = [_headline(self), *(f"  {_sentence(reason, self)}" for reason in self.reasons)]
        if self.state == TaskState.READY:
            lines += _in_line(self)
        if self.outcome is not None or not self.reasons:
            lines += _division(self)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {**super().to_dict(), "starts_when": list(self.starts_when)}


def in_words(why: kernel_why.Why) -> Why:
    """Return the kernel's answer with words."""
    return Why(**{each.name: getattr(why, each.name) for each in fields(kernel_why.Why)})


def _headline(why: Why) -> str:
    name = f"{why.id} (attempt {why.attempt})" if why.attempt > 1 else why.id
    if why.outcome is not None:
        return f"{name} {_ending(why)}"
    if why.running_ns is not None:
        holds = ", ".join(f"{_amount(resource, amount)} {resource}" for resource, amount in why.holds)
        verb = {TaskState.PAUSED: "is parked", TaskState.DISPOSING: "is asked to end"}.get(why.state, "is running")
        since = f"since {_time(why.running_ns)}"
        return f"{name} {verb} {since}, holding a slot{' and ' + holds if holds else ''}"
    waited = f"for {_time(why.waited_ns)}"
    if why.never:
        return f"{name} waits {waited} and cannot start any more:"
    return f"{name} is {why.state}, waiting {waited}:"


def _ending(why: Why) -> str:
    if why.outcome == Outcome.SUCCESS:
        return "has succeeded"
    ended = f"has ended as {why.outcome} ({why.cause})"
    return f"{ended}, because {why.root} did not succeed" if why.root else ended


def _sentence(reason: Reason, why: Why) -> str:
    if reason.kind in (ReasonKind.SLOT, ReasonKind.SCOPE_SLOTS, ReasonKind.RESOURCE):
        return _gate_sentence(reason)
    return _OTHER_SENTENCES[reason.kind](reason, why)


def _gate_sentence(reason: Reason) -> str:
    held = f", held by {_holders(reason)}" if reason.holders else ""
    if reason.kind == ReasonKind.RESOURCE:
        name = reason.name
        need, free, limit = (_amount(name, value or 0) for value in (reason.need, reason.free, reason.limit))
        if reason.never:
            return f"{name}: needs {need}, the limit is {limit}: it can never start"
        return f"{name}: needs {need}, {free} of {limit} free{held}"
    whose = f" of scope {reason.scope}" if reason.kind == ReasonKind.SCOPE_SLOTS else ""
    return f"slots{whose}: all {reason.limit} taken{held}"


def _dependency_sentence(reason: Reason, why: Why) -> str:
    named = ", ".join(f"{task.id} ({task.state})" for task in reason.tasks[:_NAMED])
    more = f" and {len(reason.tasks) - _NAMED} more" if len(reason.tasks) > _NAMED else ""
    return f"dependencies: waits for {named}{more}" + (", which can no longer succeed" if why.never else "")


_OTHER_SENTENCES: Final[dict[str, Callable[[Reason, Why], str]]] = {
    ReasonKind.SCOPE_STATE: lambda reason, _: f"scope {reason.scope} is suspended",
    ReasonKind.HELD_BACK: lambda reason, _: f"held back: {reason.tasks[0].id} comes first and does not fit yet",
    ReasonKind.DISPATCH: lambda *_: "nothing stops it: it is about to start",
    ReasonKind.DEPENDENCY: _dependency_sentence,
    ReasonKind.BACKOFF: lambda *_: "backing off before the next attempt",
    ReasonKind.OVERLAP: lambda reason, _: f"overlap: {_names(reason)} still runs",
    ReasonKind.PAUSED: lambda *_: "paused: somebody has to resume it",
}


def _condition(reason: Reason, why: Why) -> str:
    if reason.never:
        return "never, unless a limit is raised"
    if reason.kind == ReasonKind.RESOURCE:
        return f"{_amount(reason.name, reason.need or 0)} of {reason.name} are free"
    if reason.kind == ReasonKind.SCOPE_SLOTS:
        return f"a slot of scope {reason.scope} is free"
    if reason.kind == ReasonKind.DEPENDENCY:
        return f"{_names(reason)} succeed" + ("s" if len(reason.tasks) == 1 else "")
    return {
        ReasonKind.SLOT: "a slot is free",
        ReasonKind.SCOPE_STATE: f"scope {reason.scope} is resumed",
        ReasonKind.HELD_BACK: f"{_names(reason)} has started",
        ReasonKind.DISPATCH: "at once",
        ReasonKind.BACKOFF: "the backoff is over",
        ReasonKind.OVERLAP: f"{_names(reason)} has ended",
        ReasonKind.PAUSED: f"{why.id} is resumed",
    }[reason.kind]


def _in_line(why: Why) -> list[str]:
    lines = []
    ahead = sum(level.tasks for level in why.ahead)
    if ahead:
        first = [name for level in why.ahead for name in level.first][:_NAMED]
        lines.append(f"  in line: {_tasks(ahead)} ahead, first {', '.join(first)}")
    if why.effective_priority != why.priority:
        lines.append(f"  priority: {why.priority}, lifted to {why.effective_priority} by waiting")
    if why.starved:
        lines.append(f"  starved: a higher priority has held a slot for {_time(why.starved_ns)} of this")
    return lines


def _division(why: Why) -> list[str]:
    if not why.breakdown:
        return ["  it did not wait"]
    lines = [f"  it waited {_time(why.waited_ns)}:"]
    for cause, ns in sorted(why.breakdown.items(), key=lambda item: -item[1]):
        lines.append(f"    {_time(ns)} {CAUSES.get(cause, f'waiting for {cause}')}")
    return lines


def _holders(reason: Reason) -> str:
    named = [f"{holder.id} ({_share(reason, holder)})" for holder in reason.holders[:_NAMED]]
    more = f" and {len(reason.holders) - _NAMED} more" if len(reason.holders) > _NAMED else ""
    return ", ".join(named) + more


def _share(reason: Reason, holder: Holder) -> str:
    """Say what a task holds, and if it does not run as others do."""
    of_resource = reason.kind == ReasonKind.RESOURCE
    share = _amount(reason.name, holder.amount) if of_resource else _time(holder.running_ns)
    return f"{share}, {_NOT_RUNNING[holder.state]}" if holder.state in _NOT_RUNNING else share


def _names(reason: Reason) -> str:
    named = ", ".join(task.id for task in reason.tasks[:_NAMED])
    return named + (f" and {len(reason.tasks) - _NAMED} more" if len(reason.tasks) > _NAMED else "")


def _amount(resource: str, amount: int) -> str:
    return format_size(amount) if resource in _SIZES else str(amount)


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _time(ns: int) -> str:
    return format_ms(ns / NS_PER_MS)
