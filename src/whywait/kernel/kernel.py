"""The one door: commands and a time in, decisions and events out.

The owner calls commands with the present time in integer nanoseconds, never earlier than in the call before. No
command starts anything by itself: after the commands of one instant the owner calls :meth:`Kernel.dispatch` once and
carries out the :class:`Decision` that it returns. The order within one instant is: completions, :meth:`Kernel.fire`,
submissions, other commands, :meth:`Kernel.dispatch`.

A command has happened or has not. One that raises an exception of its own has changed nothing but what it says; one
that is broken off in the midst by another (MemoryError) leaves a kernel that must not be used any more.

Every command is one function of the phase that it belongs to: ``entering``, ``waiting``, ``starting``, ``running``,
``ending``, ``scopes``, ``periodics``, ``resizing``. Each effect is written there once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from whywait.errors import UnknownTask
from whywait.kernel import (
    ending,
    entering,
    lending,
    measuring,
    periodics,
    resizing,
    running,
    scopes,
    starting,
)
from whywait.kernel.base import Base
from whywait.kernel.events import RawEvent
from whywait.kernel.ids import GENERATED_ID_PREFIX, is_generated, number_of
from whywait.kernel.limits import Backfill, Budget, Limits, Overdraft, Policy, check_ns, one_of
from whywait.kernel.model import Scope, Task, name_splits
from whywait.kernel.order import Aging, Order
from whywait.kernel.state import Cause, Outcome
from whywait.kernel.timers import BACKOFF, NOTICED_TIMEOUT, PAUSE, RUN_TIMEOUT, STARVE, TICK
from whywait.kernel.waiting import wake

if TYPE_CHECKING:
    from whywait.kernel.reasons import Why
    from whywait.kernel.snapshot import Most, Snapshot

# What changes a kernel: fed to a fresh one in the same order with the same times, they give the same events.
COMMANDS: Final = (
    "open_scope", "mount", "suspend", "resume_scope", "dispose", "resize", "set_units", "submit", "submit_many",
    "remember", "ended", "parked", "note", "measured", "blocked", "pause", "resume", "stopped", "cancel",
    "add_periodic", "set_periodic_enabled", "fire", "dispatch",
)  # fmt: skip
_DEFAULT_LIMITS = Limits()
_DEFAULT_BUDGET = Budget()
_DEFAULT_POLICY = Policy()


class Kernel(Base):
    """The deterministic scheduling core."""

    __slots__ = ()

    def __init__(
        self,
        limits: Limits = _DEFAULT_LIMITS,
        budget: Budget = _DEFAULT_BUDGET,
        order: Order | None = None,
        policy: Policy = _DEFAULT_POLICY,
        *,
        backfill: str = "greedy",
        overdraft: str = "count",
        pause_timeout_ns: int = 1_500_000_000,
        starvation_timeout_ns: int = 30_000_000_000,
        jitter: Callable[[], float] = float,
        emit: Callable[[RawEvent], None] | None = None,
    ) -> None:
        """Make an empty kernel; ``jitter`` gives numbers from -1 to 1, ``emit`` takes each event."""
        one_of("backfill", backfill, Backfill)
        one_of("overdraft", overdraft, Overdraft)
        check_ns("pause_timeout_ns", pause_timeout_ns)
        super().__init__(
            limits,
            budget,
            order if order is not None else Aging(),
            policy,
            greedy=backfill == "greedy",
            overdraft=overdraft,
            pause_timeout_ns=pause_timeout_ns,
            starvation_timeout_ns=starvation_timeout_ns,
            jitter=jitter,
            emit=emit,
        )

    # Each command is the function of its phase; what it does is said there.

    open_scope = scopes.open_scope
    mount = scopes.mount_scope
    suspend = scopes.suspend
    resume_scope = scopes.resume
    dispose = ending.dispose

    submit = entering.submit
    submit_many = entering.submit_many
    remember = entering.remember
    ended = ending.end_running
    cancel = ending.cancel
    pause = running.pause
    resume = running.resume
    parked = running.parked
    stopped = running.stopped
    note = running.note
    measured = measuring.measured
    blocked = lending.blocked

    add_periodic = periodics.add
    set_periodic_enabled = periodics.set_enabled
    find_periodic = periodics.find

    dispatch = starting.dispatch
    hand_over = starting.hand_over
    resize = resizing.resize
    set_units = resizing.set_units

    # Time

    def fire(self, now: int, breath_ns: int = 0) -> bool:
        """Act on the timers that are due; return whether that can change what may start.

        An owner that may be behind with the ends of bodies gives run timeouts a breath: one that is due acts so much
        later, unless the end of its body is reported before (T6). All other timers act now.
        """
        changed = False
        while (timer := self.timers.pop_due(now)) is not None:
            target, kind = timer.target, timer.kind
            if kind == STARVE:
                self.starvation.fire(now, target)
                continue
            if kind == RUN_TIMEOUT and breath_ns:
                target.run_timer = self.timers.add(now + breath_ns, NOTICED_TIMEOUT, target)
                continue
            changed = True
            if kind in (RUN_TIMEOUT, NOTICED_TIMEOUT):
                target.run_timer = None
                ending.abort(self, now, target, Outcome.TIMEOUT, Cause.RUN_TIMEOUT)
            elif kind == PAUSE:
                target.pause_timer = None
                ending.abort(self, now, target, Outcome.ABORTED, Cause.PAUSE_TIMEOUT)
            elif kind == BACKOFF:
                target.wait_timer = None
                target.unmet -= 1
                wake(self, now, [target], 0)
            elif kind == TICK:
                periodics.tick(self, now, target)
        return changed

    def next_deadline(self) -> int | None:
        """Return when :meth:`fire` and :meth:`dispatch` have to be called at the latest."""
        timer, expiry = self.timers.next_at(), self.expiries.next_at()
        if timer is None or expiry is None:
            return expiry if timer is None else timer
        return min(timer, expiry)

    def close(self) -> None:
        """Release what a kernel holds besides memory: nothing, unless it records."""

    # Looking

    def emit_to(self, emit: Callable[[RawEvent], None] | None) -> None:
        """Send the events from now on to ``emit``."""
        self.emit = emit

    def why(self, now: int, task: Task) -> Why:
        """Return why a task waits, or what it does, or how its wait divided, over all its attempts."""
        from whywait.kernel.why import explain

        return explain(self, now, task)

    def snapshot(self, now: int, scope: Scope | None = None, most: Most | None = None) -> Snapshot:
        """Return an immutable picture of everything, or of one scope and what is below it, bounded by ``most``."""
        from whywait.kernel.snapshot import ALL, take

        return take(self, now, scope or self.root, most or ALL)

    def was_given_out(self, name: str) -> bool:
        """Return whether an id is one that was generated for a task or an iteration, which may have ended since."""
        for rest in (name, *(rest for _, rest in name_splits(name))):
            number = number_of(rest)
            if number is not None and number <= self.stats.numbered:
                periodic = rest.rpartition("#")[0]
                known = (periodic in scope.periodics for scope in self.scopes.values())
                if is_generated(rest, number) or any(known):
                    return True
        return False

    def find(self, name: str, scope: Scope | None = None) -> Task | str:
        """Return the living task of a name, or the outcome of a finished one; ``scope/name`` finds it anywhere."""
        if scope is not None:
            known = scope.known(name)
        else:
            hits = [each for each in self.scopes.values() if each.known(name) is not None]
            if len(hits) > 1:
                keys = ", ".join(f"{each.key}/{name}" for each in hits)
                raise UnknownTask(f"task id {name!r} is ambiguous: write one of {keys}")
            known = hits[0].known(name) if hits else None
            for key, rest in name_splits(name):
                if known is None and key in self.scopes:
                    known = self.scopes[key].known(rest)
        if known is None:
            living = "living " if GENERATED_ID_PREFIX in name else ""  # nothing stays of one that was given no id
            raise UnknownTask(f"no {living}task has the id {name!r}")
        return known
