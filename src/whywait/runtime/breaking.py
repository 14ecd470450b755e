"""Breaking: an authority whose command was broken off in the midst fails as a whole (A2).

A command changes the kernel step by step. In the compiled core nothing comes between the steps but a lack of memory; in
the interpreted one a signal handler that raises, or a full stack, may. Which steps were made is not known then, so
nothing is repaired and nothing goes on:

1. ``Core.midst`` is set under the lock before a command changes anything, and reset when it has changed everything. A
   command that finds it set is refused: another one was broken off, and its thread is at step 2.
2. The thread of the broken command sets ``Core.broken``, from which on everything is refused, and starts a thread with
   an empty stack that gets no signals. That one calls :func:`fail`.
3. Each task that has not ended ends as ERROR with the cause ``authority_broken``: its handle raises
   :class:`~whywait.errors.AuthorityBroken`. Each body that runs is asked to end, and killed after its grace where its
   engine can do that, as if its scope were disposed of.
4. ``Core.survivors`` has the bodies that still run; each leaves it with its report. Disposing of the authority
   waits for them and names those that do not end (O5).
"""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable, Iterable
from time import monotonic_ns, sleep
from typing import Any, Final, Protocol

from whywait.errors import AuthorityBroken
from whywait.kernel.base import Decision, tell
from whywait.kernel.events import Kind, outcome_details
from whywait.kernel.state import Cause, Outcome
from whywait.support.core import compiled
from whywait.support.raised import loggable, shown_error
from whywait.support.threads import NO_MEMORY, PAUSES_S
from whywait.task.surroundings import signal_of

Core = Any  # of core.py, which stands after this
Execution = Any  # of execution.py, the same

_HINT: Final = "; a compiled core is not interrupted there: see whywait --version"


class Breakable(Protocol):
    """An authority's core, as far as it may be broken."""

    @property
    def broken(self) -> BaseException | None:
        """What has broken a command off."""


def broken_error(core: Breakable) -> AuthorityBroken:
    """Return the error that every call to a broken authority raises."""
    return AuthorityBroken(f"the authority is broken: {reason(core)}")


def reason(core: Breakable) -> str:
    """Return why an authority is broken."""
    error = core.broken
    if error is None:
        return "a command was broken off"
    is_interrupt = not compiled and not isinstance(error, MemoryError)
    return f"{shown_error(error)} broke a command off{_HINT if is_interrupt else ''}"


def begin(
    core: Core, error: BaseException, decision: Decision | None = None, reported: Execution | None = None
) -> None:
    """Let an authority fail whose command was broken off, in a thread of its own if there is memory for it to begin."""
    try:
        is_begun = error.__class__ not in NO_MEMORY and start_new_thread(fail, (core, error, decision, reported))
    except (RuntimeError, MemoryError):  # the system gives no thread
        is_begun = False
    if not is_begun:
        fail(core, error, decision, reported)


def fail(core: Core, error: BaseException, decision: Decision | None = None, reported: Execution | None = None) -> None:
    """Let an authority fail whose command was broken off by an error.

    ``decision`` is what the command had decided so far, ``reported`` the execution whose end it was to record.
    """
    for pause_s in PAUSES_S:
        try:
            sleep(pause_s)
            if reported is not None:
                core.gone.add(reported)
            decided = [] if decision is None else [*decision.started, *decision.settled]
            _fail(core, error, decided if reported is None else [*decided, reported])
        except NO_MEMORY:  # it may come back
            continue
        return


def _fail(core: Core, error: BaseException, decided: list[Execution]) -> None:
    with core.lock:
        core.midst = True
        core.broken = core.broken or error
        is_first, core.is_failing = not core.is_failing, True
        tasks = (*core.kernel.living(), *core.kernel.running.values(), *core.kernel.settled)
        living = [each for each in dict.fromkeys((*tasks, *decided)) if not each.is_done]
        running = [each for each in living if each.active and each not in core.gone]
        core.survivors.update(dict.fromkeys(running))
    _each(core, living, _end)
    with core.lock:
        core.release_waits()
    _each(core, running, _abort)
    for engine in {each.engine for each in running}:
        never_begun = engine.withdraw([each for each in running if each.engine is engine])
        _each(core, never_begun, _forget)
    _each(core, (*living, *decided), _tell)
    if is_first:
        told = "the authority is broken, and all of its tasks end: %s"
        core.log.critical(told, reason(core), exc_info=loggable(error))
        for fn in core.when_broken:
            fn()
    core.deliver_events()
    with core.lock:
        core.has_failed = True
        core.tell_watchers()


def _each(core: Core, executions: Iterable[Execution], act: Callable[[Core, Execution], None]) -> None:
    """Act on each execution; what goes wrong with one is logged and keeps no other from its end."""
    for each in executions:
        try:
            act(core, each)
        except Exception as error:
            core.log.exception("a task of a broken authority could not be ended", exc_info=loggable(error))


def _end(core: Core, execution: Execution) -> None:
    """Record the end of a task."""
    execution.outcome, execution.cause = Outcome.ERROR, Cause.AUTHORITY_BROKEN
    execution.error = None
    execution.is_done = True
    details = outcome_details(Outcome.ERROR, Cause.AUTHORITY_BROKEN)
    tell(core.kernel, monotonic_ns(), Kind.TASK_FINISHED, execution, execution.started_seq, details)


def _abort(core: Core, execution: Execution) -> None:
    """Ask a body to end, and have it killed after its grace if it does not."""
    signal = signal_of(execution)
    with core.lock:
        signal.follow(pause=0, reason=Cause.AUTHORITY_BROKEN)
        execution.attention = True
    signal.notify()
    engine = execution.engine
    engine.abort(execution)
    if engine.can_kill or core.settings.inject:
        core.call_later(core.grace_of(execution), lambda: _kill(core, execution))


def _forget(core: Core, execution: Execution) -> None:
    """Wait no more for a body that will never begin."""
    core.take_late_report(execution)


def _kill(core: Core, execution: Execution) -> None:
    if execution in core.survivors:
        execution.engine.kill(execution)


def _tell(core: Core, execution: Execution) -> None:
    if execution in core.survivors:
        core.release(execution)  # the body still runs: what it uses is not let go
    else:
        core.tell(execution)
