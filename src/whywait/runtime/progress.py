"""progress: a bar for handles, a scope or an authority, until all of it has ended.

What is drawn is a :class:`Look` at the tasks, taken a few times a second. Where it is drawn decides how: a bar of rich
in a terminal, HTML that changes in place in a notebook, a line for every tenth of the way elsewhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from html import escape
from time import monotonic, monotonic_ns
from typing import Any, Final, NamedTuple, TextIO

from whywait.errors import ConfigError
from whywait.kernel.events import Event, Kind, RawEvent
from whywait.kernel.model import Task
from whywait.kernel.state import Outcome
from whywait.kernel.waiting import waits_for
from whywait.observe.explain import CAUSE_LABELS
from whywait.observe.fold import ENDS, Attempt, Fold
from whywait.runtime.authority import Authority, root_of
from whywait.runtime.handle import Handle
from whywait.runtime.scope import OpenScope, Scope, open_of
from whywait.support.notebooks import Cell, bar, in_notebook
from whywait.support.units import format_ms, printable
from whywait.support.waiters import refuse_on_loop

_EVERY_S: Final = 0.2
_NAMED: Final = 3  # running tasks
_MOST_CAUSES: Final = 3
_MOST_ASKED: Final = 2_000  # waiting tasks that are asked what they wait for
_STEPS: Final = 10  # lines of a progress that is no picture
_ENDED_BADLY: Final = frozenset((Outcome.ERROR, Outcome.TIMEOUT, Outcome.ABORTED, Outcome.REJECTED))


class Look(NamedTuple):
    """How far some tasks have come."""

    ended: int
    total: int
    failed: int  # of those that have ended, all but the successes
    running: tuple[str, ...]  # ids, the first few
    running_total: int
    waiting: tuple[tuple[str, int], ...]  # what for, and how many tasks; the most frequent first
    is_last: bool = False

    def in_words(self) -> str:
        """Return it in one line."""
        parts = [f"{self.ended:,} of {self.total:,}"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.running_total:
            more = self.running_total - len(self.running)
            parts.append("running " + ", ".join(map(printable, self.running)) + (f" and {more:,} more" if more else ""))
        parts += [f"{count:,} wait{'s' * (count == 1)} for {cause}" for cause, count in self.waiting]
        return " · ".join(parts)


def progress(what: Iterable[Handle[Any]] | Handle[Any] | Scope | Authority, *, stream: TextIO | None = None) -> None:
    """Draw how far handles, a scope or an authority have come, until all has ended.

    Errors are counted, not raised. In a terminal it is a bar (of ``rich``, if that is installed), in a notebook HTML
    that changes in place, elsewhere a line for each tenth of the way; ``stream`` is where it goes, stderr by default.
    """
    refuse_on_loop("progress()", "await asyncio.to_thread(whywait.progress, handles)")
    followed = _followed(what)
    try:
        with _view(stream) as show:
            while not followed.wait(_EVERY_S):
                show(followed.look())
            show(followed.look()._replace(is_last=True))
    finally:
        followed.stop()


def _followed(what: object) -> _Handles | _Tasks:
    if isinstance(what, Authority):
        return _Tasks(root_of(what))
    if isinstance(what, Scope):
        return _Tasks(open_of(what))
    handles: list[Any] = list(what) if isinstance(what, Iterable) else [what]
    for each in handles:
        if not isinstance(each, Handle):
            raise ConfigError(f"{each!r} is not a handle: progress() takes handles, a scope or an authority")
    return _Handles(handles)


class _Handles:
    """A fixed number of handles."""

    def __init__(self, handles: list[Handle[Any]]) -> None:
        self._executions = list(handles)

    def look(self) -> Look:
        executions = self._executions
        done = [each for each in executions if each.is_done]
        failed = sum(each.outcome is not Outcome.SUCCESS for each in done)
        return _look(len(done), len(executions), failed, [each for each in executions if not each.is_done])

    def wait(self, timeout_s: float) -> bool:
        until = monotonic() + timeout_s
        for each in self._executions:
            if not each.is_done:
                with suppress(TimeoutError):
                    each.wait(max(0.0, until - monotonic()))
                if not each.is_done:
                    return False
        return True

    def stop(self) -> None:
        pass


class _Tasks:
    """All tasks of a scope and of what is below it, those that are still to come as well."""

    def __init__(self, scope: OpenScope) -> None:
        self._scope = scope
        self._counted: Counter[str] = Counter()
        self._fold: Fold[Attempt] = Fold(Attempt)
        self._end: Callable[[], None] = scope.core.tap(self._note)  # at once: what ends is counted when it is gone

    def _note(self, raw: RawEvent) -> None:
        event = Event.of(raw)
        attempt = self._fold.feed(event)
        scope = self._scope.core.kernel.scopes.get(event.scope)  # None: it is gone, and it was inside
        if attempt is None or attempt.periodic or (scope is not None and self._scope.kernel_scope not in scope.chain):
            return
        if event.kind == Kind.TASK_RETRIED:  # the attempt before it was not the end
            self._counted[Outcome.ERROR] -= 1
        elif event.kind in ENDS:
            self._counted[attempt.outcome or ENDS[event.kind]] += 1

    def _living(self) -> list[Task]:
        scopes = self._scope.kernel_scope.subtree()
        return [task for each in scopes for task in each.tasks.values() if task.periodic is None]

    def look(self) -> Look:
        with self._scope.core.lock:
            living = self._living()
            counted = self._counted.copy()
        failed = sum(counted[outcome] for outcome in _ENDED_BADLY)
        return _look(counted.total(), counted.total() + len(living), failed, living)

    def wait(self, timeout_s: float) -> bool:
        return self._scope.done_within(timeout_s)

    def stop(self) -> None:
        self._end()


def _look(ended: int, total: int, failed: int, living: list[Any]) -> Look:
    running, waiting = [], Counter[str]()
    for task in living[:_MOST_ASKED]:
        core = task.core
        with core.lock:
            cause = waits_for(core.kernel, task)
            if task.active:
                running.append(task.label)
            elif cause is not None:
                waiting[CAUSE_LABELS.get(cause, cause)] += 1
    return Look(ended, total, failed, tuple(running[:_NAMED]), len(running), tuple(waiting.most_common(_MOST_CAUSES)))


# Where it is drawn: each is a block that gives a function to draw a look.

Show = Callable[[Look], object]


def _view(stream: TextIO | None) -> AbstractContextManager[Show]:
    if stream is None and in_notebook():
        return nullcontext(_in_notebook())
    stream = stream or sys.stderr
    if stream.isatty():
        with suppress(ImportError):
            import rich.progress  # noqa: F401

            return _in_terminal(stream)
    return nullcontext(_in_lines(stream))


def _in_lines(stream: TextIO) -> Show:
    """Draw a line for each tenth of the way."""
    step, began_ns = -1, monotonic_ns()

    def show(look: Look) -> None:
        nonlocal step
        before, step = step, max(step, _STEPS * look.ended // look.total if look.total else 0)
        if look.is_last or step > before:
            with suppress(OSError, ValueError):  # a reader that has gone does not stop the tasks
                stream.write(f"{format_ms((monotonic_ns() - began_ns) / 1e6):>9}  {look.in_words()}\n")
                stream.flush()

    return show


@contextmanager
def _in_terminal(stream: TextIO) -> Iterator[Show]:
    """Draw a bar, by rich."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stream)) as drawn:
        bar = drawn.add_task("", total=None)
        yield lambda look: drawn.update(
            bar, completed=look.ended, total=look.total or None, description=look.in_words()
        )


def _in_notebook() -> Show:
    """Draw HTML that changes in place."""
    cell = Cell("")

    def show(look: Look) -> None:
        part = look.ended / look.total if look.total else 0.0
        cell.replace(f"<div>{bar(part)} {escape(look.in_words())}</div>")

    return show
