"""Acts: what commands do that consist of more than one command of the kernel; each is called under the lock.

They stand here, in the compiled core, so that no signal comes between their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from whywait.engines.base import Engine
from whywait.kernel.model import Scope
from whywait.kernel.resizing import check_limit, check_units
from whywait.kernel.state import OPEN_SCOPE_STATES, Cause, ScopeState, TaskState

Core = Any  # of core.py, which stands after this
ScopeRecord = Any  # the same
Execution = Any  # of execution.py

BREATH_NS: Final = (20_000_000, 2_000_000_000)  # how long a due run timeout waits for reports: at least, at most
_WITH_PERIODICS: Final = (*OPEN_SCOPE_STATES, ScopeState.SUSPENDED)


def tick(now: int, core: Core) -> None:
    """Act on the timers of the kernel that are due.

    After a stall other threads have yet to report which bodies have ended: run timeouts wait for them as long as this
    look is late, within the bounds of ``BREATH_NS``. Nothing else waits (T6).
    """
    due_ns = core.kernel.next_deadline()
    late_ns = 0 if due_ns is None else now - due_ns
    shortest, longest = BREATH_NS
    core.kernel.fire(now, min(max(late_ns, shortest), longest))


def open_scope(now: int, core: Core, record: ScopeRecord, key: str, above: Scope, options: Mapping[str, Any]) -> None:
    """Open a scope, and keep its record, which gets to know it."""
    record.kernel_scope = core.kernel.open_scope(now, key, above, **options)
    core.scopes[key] = record


def stop_periodics(now: int, core: Core, scope: Scope) -> None:
    """Switch off the periodics of a scope and of those below it."""
    for each in scope.subtree():
        if each.state in _WITH_PERIODICS:
            for periodic in each.periodics.values():
                core.kernel.set_periodic_enabled(now, periodic, enabled=False)


def set_periodic_enabled(now: int, core: Core, id: str, enabled: bool, immediately: bool) -> None:
    """Switch a periodic on or off, by its id."""
    core.kernel.set_periodic_enabled(now, core.kernel.find_periodic(id), enabled, immediately=immediately)


def parked(now: int, core: Core, execution: Execution, signal: Any) -> None:
    """Record that a body has parked at a checkpoint."""
    core.kernel.parked(now, execution)
    signal.parked = True


def pause(now: int, core: Core, execution: Execution, tell: Callable[[], object]) -> bool:
    """Pause a task; if it runs, return True and have ``tell`` called when it has parked or will not."""
    core.kernel.pause(now, execution)
    if execution.state is not TaskState.RUNNING:
        return False
    core.pause_waiters.setdefault(execution.number, []).append(tell)
    return True


def cancel_pending(now: int, core: Core, executions: Iterable[Execution]) -> None:
    """End those tasks that can be ended without asking a body."""
    for execution in executions:
        if execution.is_cancellable:
            core.kernel.cancel(now, execution)


def loop_closed(now: int, core: Core, engine: Engine) -> None:
    """End the pending tasks of an engine whose event loop has ended."""
    for task in core.kernel.living():
        if task.pending and task.engine is engine:
            core.kernel.cancel(now, task, Cause.LOOP_CLOSED)


def block(now: int, core: Core, execution: Execution, wait: Any) -> None:
    """Record that the body of a task waits for the ends of others; the last one that has not ended is told of."""
    _follow(now, core, execution, (*_without(execution.blocked_for, wait), wait))


def unblock(now: int, core: Core, execution: Execution, wait: Any, waiter: Any) -> bool:
    """Record that it does no more; if it has to wait for its slot, return True and have ``waiter`` released then."""
    _follow(now, core, execution, _without(execution.blocked_for, wait))
    if waiter is None or execution.number not in core.kernel.wanting:
        return False
    execution.returning = (*execution.returning, waiter)
    return True


def _follow(now: int, core: Core, execution: Execution, waits: tuple[Any, ...]) -> None:
    execution.blocked_for = waits
    on = None
    for wait in waits:
        wait.on = None
        for other in reversed(wait.others):
            if not other.is_done:
                on = wait.on = other
                break
    core.kernel.blocked(now, execution, on)


def _without(waits: tuple[Any, ...], wait: Any) -> tuple[Any, ...]:
    return tuple([each for each in waits if each is not wait])


def resize(
    now: int,
    core: Core,
    hard: Mapping[str, int],
    soft: Mapping[str, int],
    devices: Mapping[str, Mapping[str, int]],
) -> None:
    """Set limits that have changed, and the units of devices; all are checked before any is set."""
    kernel = core.kernel
    for kind, units in devices.items():
        check_units(kernel, kind, units)
    for limits in (hard, soft):
        for name, amount in limits.items():
            check_limit(kernel, name, amount)
    for limits in (hard, soft):
        for name, amount in limits.items():
            kernel.resize(now, name, amount, soft=limits is soft)
    for kind, units in devices.items():
        kernel.set_units(now, kind, units)
