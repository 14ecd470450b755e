"""Periodics: adding them, their ticks and triggers, switching them on and off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from whywait.errors import ConfigError, DuplicateTask, InvalidTransition, Rejected, ScopeClosed, UnknownTask
from whywait.kernel import ending, entering, waiting
from whywait.kernel.base import Base, Skip, tell_of
from whywait.kernel.events import Kind
from whywait.kernel.ids import LONGEST_ID
from whywait.kernel.model import Scope, Submission, Task, name_splits, rank_of, task_for
from whywait.kernel.periodic import Periodic
from whywait.kernel.state import OPEN_SCOPE_STATES, STATE_WORDS, Cause, ScopeState, Wait
from whywait.kernel.timers import TICK

_LONGEST: Final = LONGEST_ID - 20  # "#" and the number of an iteration follow


def add(
    k: Base,
    now: int,
    scope: Scope,
    interval_ns: int,
    name: str | None = None,
    *,
    immediately: bool = False,
    **settings: Any,
) -> Periodic:
    """Add a periodic task to a scope; its first tick is one interval from now, or now if ``immediately``."""
    if scope.state not in (*OPEN_SCOPE_STATES, ScopeState.SUSPENDED):
        raise ScopeClosed(
            f"scope {scope.key!r} is {STATE_WORDS[scope.state]}: it takes no periodics",
            check="scope state",
            cause=Cause.SCOPE_STATE,
        )
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"periodic id {name!r} is not allowed: use a string that is not empty")
    if name is not None and len(name) > _LONGEST:
        raise ConfigError(f"a periodic id of {len(name):,} characters is not allowed: use at most {_LONGEST:,}")
    _check_flags(name, immediately=immediately)
    k.periodics_added += 1
    name = name if name is not None else f"periodic-{k.periodics_added}"
    if name in scope.periodics:
        raise DuplicateTask(
            f"periodic id {name!r} is used in scope {scope.key!r}: choose another id",
            check="id unused",
            cause=Cause.DUPLICATE,
        )
    periodic = Periodic(scope, name, now, interval_ns, **settings)
    entering.check_demand(scope.pool, periodic.demand, f"periodic {name!r}")
    scope.periodics[name] = periodic
    tell_of(k, now, Kind.PERIODIC_ADDED, scope, name, 0, (("interval_ns", interval_ns),))
    if periodic.enabled:
        _set_tick(k, now, periodic, consumed=True)
        if immediately:
            _trigger(k, now, periodic, missed=0)
    return periodic


def set_enabled(k: Base, now: int, periodic: Periodic, enabled: bool, *, immediately: bool = False) -> None:
    """Switch a periodic on (from the next tick, or now if ``immediately``) or off; the grid of its ticks stays."""
    _check_flags(periodic.name, enabled=enabled, immediately=immediately)
    scope = periodic.scope
    if scope.state in (ScopeState.DISPOSING, ScopeState.DISPOSED):
        raise InvalidTransition(f"periodic {periodic.name!r} has ended with its scope")
    if periodic.enabled == enabled:
        return
    if not enabled:
        ending.switch_off(k, now, periodic, "asked")
        return
    periodic.enabled = True
    tell_of(k, now, Kind.PERIODIC_ENABLED, periodic.scope, periodic.name)
    _set_tick(k, now, periodic, consumed=False)
    if immediately:
        _trigger(k, now, periodic, missed=0)


def _check_flags(name: str | None, **flags: object) -> None:
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"periodic {name!r}: {flag} {value!r} is not allowed: use True or False")


def tick(k: Base, now: int, periodic: Periodic) -> None:
    """Act on a tick that is due, once, however many intervals have passed."""
    missed = periodic.missed(now)
    _set_tick(k, now, periodic, consumed=True)
    _trigger(k, now, periodic, missed=missed)


def find(k: Base, name: str) -> Periodic:
    """Return the periodic of a name; ``scope/name`` where several scopes have one."""
    if not isinstance(name, str):
        raise UnknownTask(f"a periodic is looked up by its id, not by {name!r}")
    for key, rest in name_splits(name):
        if key in k.scopes and rest in k.scopes[key].periodics:
            return k.scopes[key].periodics[rest]  # type: ignore[no-any-return] # see Scope.periodics
    hits = [scope for scope in k.scopes.values() if name in scope.periodics]
    if len(hits) > 1:
        keys = ", ".join(f"{scope.key}/{name}" for scope in hits)
        raise UnknownTask(f"periodic id {name!r} is ambiguous: write one of {keys}")
    if not hits:
        known = ", ".join(f"{scope.key}/{each}" for scope in k.scopes.values() for each in scope.periodics)
        raise UnknownTask(f"no periodic has the id {name!r}; there are {known or 'none'}")
    return hits[0].periodics[name]  # type: ignore[no-any-return] # see Scope.periodics


def _set_tick(k: Base, now: int, periodic: Periodic, *, consumed: bool) -> None:
    jitter = k.jitter() if periodic.jitter else 0.0
    at = periodic.next_tick(now, jitter, consumed=consumed)
    periodic.timer = k.timers.add(at, TICK, periodic)


def _trigger(k: Base, now: int, periodic: Periodic, *, missed: int) -> None:
    """Make a task of a tick, or drop the tick with an event that says why."""
    scope = periodic.scope
    suspended = any(each.state is ScopeState.SUSPENDED for each in scope.chain)
    code = Cause.SCOPE_STATE if suspended else periodic.refusal()
    key = (periodic.priority, periodic.demand)
    victims: Sequence[Task] = ()
    if code is None:
        try:
            found = entering.check(k, scope, None, key)
            if scope.limited:
                victims = entering.make_room((Submission(scope, None, *key, slot=periodic.slot),), (found,))
        except Rejected as refusal:
            code = refusal.cause
    periodic.missed_ticks += missed
    if code is not None:
        periodic.skipped += 1
        periodic.streak += 1
        if periodic.streak == 1 and code != Cause.SCOPE_STATE:
            since = periodic.running_since
            running_ns = None if since is None else now - since
            k.skipped.append(Skip(scope.key, periodic.name, code, running_ns))
        details = (("code", code), ("missed", missed))
        tell_of(k, now, Kind.PERIODIC_SKIPPED, scope, periodic.name, 0, details)
        return
    periodic.streak = 0
    seq = tell_of(k, now, Kind.PERIODIC_TICK, scope, periodic.name, 0, (("missed", missed),))
    entering.displace(k, now, victims)
    task = task_for(periodic.job) if periodic.make_task is None else periodic.make_task()
    rank = rank_of(periodic.priority, periodic.slot)
    lane = waiting.lane_of(k, now, scope, (rank, periodic.demand))
    waiting.take_in(k, now, task, lane, periodic.policy)
    entering.register(task, None)
    task.name = f"{periodic.name}#{task.number}"
    task.periodic = periodic
    task.plain = False
    k.stats.iterations += 1
    if periodic.accept(task):
        task.held_by = Wait.OVERLAP
        task.unmet = 1
    else:
        waiting.become_ready(k, now, task)
    k.trigger = entering.tell_submitted(k, now, task, seq)
