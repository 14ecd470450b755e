"""The life of a scope: opening, suspending, disposing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whywait.errors import ConfigError, InvalidTransition, ScopeClosed, ScopeExists
from whywait.kernel import graph
from whywait.kernel.events import Kind
from whywait.kernel.model import Limits, Policy, Scope, Task
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState, scope_step

if TYPE_CHECKING:
    from whywait.kernel.life import Life

DISPOSED_DETAILS: Final = (("cause", Cause.SCOPE_DISPOSED),)
_CLOSED = -1  # what a state gate has free while the scope lets nothing start


def open_scope(
    life: Life, now: int, key: str, parent: Scope, limits: Limits, policy: Policy | None, *, mount: bool
) -> Scope:
    """Make a scope; a living one of the same key is left alone and the newcomer refused."""
    if not isinstance(key, str) or not key:
        raise ConfigError(f"scope key {key!r} is not allowed: use a string that is not empty")
    if key in life.scopes:
        raise ScopeExists(f"scope {key!r} exists and is {life.scopes[key].state}: choose another key or dispose it")
    if parent.state in (ScopeState.DISPOSING, ScopeState.DISPOSED):
        around = f"scope {parent.key!r}" if parent.key else "the authority"
        raise ScopeClosed(
            f"{around} is {parent.state}: no scope can be opened in it",
            check="scope state",
            cause=Cause.SCOPE_STATE,
        )
    scope = Scope(key, parent, limits, policy or parent.policy)
    life.scopes[key] = parent.children[key] = scope
    life.other_event(now, Kind.SCOPE_CREATED, scope, None, None, (("parent", parent.key),) if parent.key else None)
    if mount:
        mount_scope(life, now, scope)
    return scope


def mount_scope(life: Life, now: int, scope: Scope) -> None:
    """INIT to ATTACHED."""
    scope.state = scope_step(scope.state, "mount", ScopeState.ATTACHED, scope.key)
    life.other_event(now, Kind.SCOPE_ATTACHED, scope)


def suspend(life: Life, now: int, scope: Scope) -> None:
    """RUNNING to SUSPENDED; the state gate closes for everything below too."""
    if scope.parent is None:
        raise InvalidTransition("the authority itself cannot be suspended: suspend its scopes")
    scope.state = scope_step(scope.state, "suspend", ScopeState.SUSPENDED, scope.key)
    scope.state_gate.free = _CLOSED
    life.suspended += 1
    life.other_event(now, Kind.SCOPE_SUSPENDED, scope)


def resume(life: Life, now: int, scope: Scope) -> None:
    """SUSPENDED to RUNNING."""
    scope.state = scope_step(scope.state, "resume", ScopeState.RUNNING, scope.key)
    scope.state_gate.free = 0
    life.suspended -= 1
    life.dispatcher.gate_moved(scope.state_gate)
    life.trigger = life.other_event(now, Kind.SCOPE_RESUMED, scope)


def dispose(life: Life, now: int, scope: Scope) -> None:
    """End everything inside: children first, running tasks in start order, pending ones in submission order."""
    if scope.state in (ScopeState.DISPOSING, ScopeState.DISPOSED):
        return
    doomed = [each for each in scope.subtree() if each.state != ScopeState.DISPOSING]
    seq = None
    for each in doomed:
        life.suspended -= each.state == ScopeState.SUSPENDED
        each.state = scope_step(each.state, "dispose", ScopeState.DISPOSING, each.key)
        seq = life.other_event(now, Kind.SCOPE_DISPOSING, each, cause=seq)
        life.periodics.remove_all(each)
    end_inside(life, now, doomed, seq)


def end_inside(life: Life, now: int, doomed: list[Scope], seq: int | None) -> None:
    """End all tasks of scopes that are DISPOSING, and the scopes that have nothing left."""
    children_first = sorted(doomed, key=_depth, reverse=True)
    ended = [task for each in children_first for task in _end_tasks(life, now, each, seq)]
    outside = graph.descendants(ended)
    for task, root in outside:
        life.end_pending(now, task, Outcome.ABORTED, Cause.DEPENDENCY, root.id, seq)
    for task in ended:
        task.successors = None
    life.wake_after_end(now, (*ended, *(task for task, _ in outside)), seq)
    for each in children_first:
        life.finish_disposal(now, each, seq)


def _end_tasks(life: Life, now: int, scope: Scope, led_by: int | None) -> list[Task]:
    """Abort what runs, end what is pending; return those that others may depend on."""
    for task in [task for task in life.running.values() if task.scope is scope]:
        if task.abort is None:
            life.ask_abort(now, task, Outcome.ABORTED, Cause.SCOPE_DISPOSED, led_by)
    others = []
    for task in list(scope.tasks.values()):
        if task.state == TaskState.READY and task.plain and task.successors is None:
            life.end_alone(now, task, Outcome.ABORTED, Cause.SCOPE_DISPOSED, DISPOSED_DETAILS, led_by)
            continue
        others.append(task)
        if task.pending:
            life.end_pending(now, task, Outcome.ABORTED, Cause.SCOPE_DISPOSED, led_by=led_by)
    for lane in list(scope.lanes.values()):
        life.dispatcher.clear(now, lane)
    return others


def _depth(scope: Scope) -> int:
    return len(scope.chain)
