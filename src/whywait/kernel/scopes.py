"""Scopes: opening, mounting, suspending and resuming them. How they end is in ``ending.py``."""

from __future__ import annotations

from typing import Final

from whywait.errors import ConfigError, InvalidTransition, ScopeClosed, ScopeExists
from whywait.kernel.base import Base, no_slot_held, tell_of
from whywait.kernel.events import Details, Kind
from whywait.kernel.ids import LONGEST_ID
from whywait.kernel.limits import Budget, Limits, Policy
from whywait.kernel.model import Scope
from whywait.kernel.state import STATE_WORDS, Cause, ScopeState, scope_step

_NO_LIMITS: Final = Limits()


def open_scope(
    k: Base,
    now: int,
    key: str,
    parent: Scope | None = None,
    limits: Limits = _NO_LIMITS,
    policy: Policy | None = None,
    *,
    mount: bool = True,
    budget: Budget | None = None,
) -> Scope:
    """Make a scope below ``parent`` (default: the authority itself); with ``mount`` it accepts tasks at once.

    With a ``budget``, a hard one, its tasks are served out of that and take nothing from the authority's. A living
    scope of the same key is left alone and the newcomer refused.
    """
    parent = parent or k.root
    if not isinstance(key, str) or not key:
        raise ConfigError(f"scope key {key!r} is not allowed: use a string that is not empty")
    if len(key) > LONGEST_ID:
        raise ConfigError(f"a scope key of {len(key):,} characters is not allowed: use at most {LONGEST_ID:,}")
    if key in k.scopes:
        raise ScopeExists(
            f"scope {key!r} exists and is {STATE_WORDS[k.scopes[key].state]}: choose another key or dispose it"
        )
    if parent.state in (ScopeState.DISPOSING, ScopeState.DISPOSED):
        around = f"scope {parent.key!r}" if parent.key else "the authority"
        raise ScopeClosed(
            f"{around} is {STATE_WORDS[parent.state]}: no scope can be opened in it",
            check="scope state",
            cause=Cause.SCOPE_STATE,
        )
    if budget is not None and budget.soft:
        raise ConfigError(f"the budget of scope {key!r} has soft limits: {', '.join(budget.soft)}; use hard ones")
    scope = Scope(key, parent, limits, policy or parent.policy, budget)
    k.scopes[key] = parent.children[key] = scope
    details: Details = (("parent", parent.key),) if parent.key else ()
    if budget is not None:
        details = (*details, ("own_budget", True))
    tell_of(k, now, Kind.SCOPE_CREATED, scope, None, 0, details or None)
    if mount:
        mount_scope(k, now, scope)
    return scope


def mount_scope(k: Base, now: int, scope: Scope) -> None:
    """Let a new scope accept tasks: INIT to ATTACHED."""
    scope.state = scope_step(scope.state, "mount", ScopeState.ATTACHED, scope.key)
    scope.note_state()
    tell_of(k, now, Kind.SCOPE_ATTACHED, scope)


def suspend(k: Base, now: int, scope: Scope) -> None:
    """Keep everything pending of a scope, and of the scopes below it, from starting: RUNNING to SUSPENDED."""
    if scope.parent is None:
        raise InvalidTransition("the authority itself cannot be suspended: suspend its scopes")
    scope.state = scope_step(scope.state, "suspend", ScopeState.SUSPENDED, scope.key)
    k.suspended += 1
    scope.note_state()
    tell_of(k, now, Kind.SCOPE_SUSPENDED, scope)


def resume(k: Base, now: int, scope: Scope) -> None:
    """Lift a suspension: SUSPENDED to RUNNING."""
    scope.state = scope_step(scope.state, "resume", ScopeState.RUNNING, scope.key)
    k.suspended -= 1
    scope.note_state()
    k.levels.opened(now, scope.state_gate, no_slot_held(k))
    k.trigger = tell_of(k, now, Kind.SCOPE_RESUMED, scope)
