"""Events as sentences, for logs and spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from whywait.kernel.events import Event, Kind
from whywait.kernel.state import STATE_WORDS, Outcome, Wait
from whywait.observe.explain import (
    STOPPED,
    amount_in_words,
    cause_in_words,
    ending_in_words,
    listed,
    time_in_words,
    units_in_words,
)
from whywait.support.units import format_size, printable

_LIMITS: Final[dict[str, str]] = {Wait.SLOT: "slots"}


def event_in_words(event: Event, label: str | None = None) -> str:
    """Return what an event tells, in one line; ``label`` is how its task is shown, if that is known."""
    details = dict(event.details or ())
    subject = label or event.id or f"scope {event.scope or '(the authority)'}"
    words = _EVENTS.get(event.kind)
    if words is not None:
        return printable(words(subject, details))
    told = ", ".join(f"{key} {value}" for key, value in details.items())
    return printable(f"{subject}: {event.kind.lower().replace('_', ' ')}" + (f" ({told})" if told else ""))


def _lane_words(subject: str, details: dict[str, Any]) -> str:
    needs = ", ".join(f"{amount_in_words(name, amount)} {name}" for name, amount in details.get("demand", ()))
    tasks = f"tasks of priority {details['priority']} in {subject}" + (f" that need {needs}" if needs else "")
    cause = details["cause"]
    if cause == Wait.SLOT:
        return f"{tasks}: " + (
            "no gate is closed any more, they wait for their turn" if details["tasks"] else "none waits"
        )
    behind = ", and others wait behind them" if details.get("holds_back") else ""
    return f"{tasks}: {cause_in_words(cause)}{behind}"


def _started_words(subject: str, details: dict[str, Any]) -> str:
    waits, devices = details.get("waits"), details.get("devices")
    subject = f"{subject} (on {units_in_words(devices)})" if devices else subject
    if not waits:
        return f"{subject} started at once"
    parts = [
        f"{time_in_words(ns)} {cause_in_words(cause)}" for cause, ns in sorted(waits.items(), key=lambda item: -item[1])
    ]
    return f"{subject} started after {time_in_words(sum(waits.values()))}: {', '.join(parts)}"


def _ended_words(subject: str, details: dict[str, Any]) -> str:
    outcome = details.get("outcome", Outcome.ABORTED)
    facts = [f"exit code {details['exit_code']}"] if details.get("exit_code") else []
    if details.get("peak_ram") is not None:
        facts.append(f"peak {format_size(details['peak_ram'])}")
    told = ending_in_words(outcome, details.get("cause"), details.get("root"))
    return f"{subject} {told}{' · ' if facts else ''}{', '.join(facts)}"


def _state(state: str) -> str:
    return STATE_WORDS.get(state, state)


def _limit_words(subject: str, details: dict[str, Any]) -> str:
    if "units" not in details:
        limit, what = details["limit"], _LIMITS.get(subject, subject)
        return f"there {'is' if limit == 1 else 'are'} {amount_in_words(subject, limit)} {what} now"
    units = [f"{name} ({format_size(size)})" if size else name for name, size in details["units"]]
    return f"there is {subject} {listed(units)} now" if units else f"there is no {subject} any more"


_EVENTS: Final[dict[str, Callable[[str, dict[str, Any]], str]]] = {
    Kind.LANE_WAITS: _lane_words,
    Kind.TASK_SUBMITTED: lambda it, details: f"{it} was submitted and is {_state(details['state'])}",
    Kind.TASK_READY: lambda it, _: f"{it} is ready: nothing is left to wait for but its turn",
    Kind.TASK_STARTED: _started_words,
    Kind.TASK_PAUSE_ASKED: lambda it, _: f"{it} is asked to pause",
    Kind.TASK_PAUSED: lambda it, details: (
        f"{it} is {STOPPED if details.get('stopped') else 'paused'}, it was {_state(details['from'])}"
    ),
    Kind.TASK_RESUMED: lambda it, details: f"{it} is resumed and {_state(details['to'])}",
    Kind.TASK_ABORT_ASKED: lambda it, details: f"{it} is asked to end ({details['cause']})",
    Kind.TASK_FINISHED: _ended_words,
    Kind.TASK_CANCELLED: _ended_words,
    Kind.TASK_DROPPED: lambda it, details: f"{it} was dropped ({details['cause']})",
    Kind.TASK_REJECTED: lambda it, details: f"{it} was refused ({details['cause']})",
    Kind.TASK_RETRIED: lambda it, details: f"{it} failed and is tried again, attempt {details['attempt']}",
    Kind.TASK_STARVED: lambda it, details: (
        f"{it} is starved: a higher priority has held a slot for {time_in_words(details['starved_ns'])} of its wait"
    ),
    Kind.TASK_MEASURED: lambda it, details: f"the budget counts {format_size(details['ram'])} of memory for {it}",
    Kind.TASK_OVERDRAWN: lambda it, details: (
        f"{it} uses {format_size(details['ram'])} of memory and has asked for {format_size(details['asked'])}"
    ),
    Kind.TASK_BLOCKED: lambda it, details: (
        f"{it} blocks until task number {details['on']} has ended{' and lends its slot' * bool(details.get('lends'))}"
    ),
    Kind.TASK_UNBLOCKED: lambda it, _: f"{it} blocks no more",
    Kind.TASK_REGAINED: lambda it, _: f"{it} has its slot again and goes on",
    Kind.TASK_PLACED: lambda it, details: (
        f"{it} was placed by {details['engine']} on {details['machine']} ({details['node']}), process {details['pid']}"
    ),
    Kind.LIMIT_CHANGED: _limit_words,
    Kind.SCOPE_CREATED: lambda it, _: f"{it} was opened",
    Kind.SCOPE_ATTACHED: lambda it, _: f"{it} accepts tasks",
    Kind.SCOPE_RUNNING: lambda it, _: f"{it} runs its first task",
    Kind.SCOPE_SUSPENDED: lambda it, _: f"{it} is suspended: nothing of it starts",
    Kind.SCOPE_RESUMED: lambda it, _: f"{it} is resumed",
    Kind.SCOPE_DISPOSING: lambda it, _: f"{it} is being disposed",
    Kind.SCOPE_DISPOSED: lambda it, _: f"{it} is disposed",
    Kind.PERIODIC_ADDED: lambda it, details: f"periodic {it} was added, every {time_in_words(details['interval_ns'])}",
    Kind.PERIODIC_TICK: lambda it, _: f"periodic {it} ticked",
    Kind.PERIODIC_SKIPPED: lambda it, details: f"periodic {it} dropped a tick ({details['code']})",
    Kind.PERIODIC_ENABLED: lambda it, _: f"periodic {it} is on",
    Kind.PERIODIC_DISABLED: lambda it, details: f"periodic {it} is off ({details['reason']})",
}
