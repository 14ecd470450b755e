"""Services: what tasks, handles, engines and DevTools ask of the core beside its commands.

A child process has its own stand-in for the part that bodies use, see :mod:`whywait.engines.process.child_task`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from whywait.engines.base import Engine
from whywait.engines.registry import Engines
from whywait.errors import ForeignRef, StaleRef, UnknownScope, UnknownTask
from whywait.kernel.events import Event, Kind, RawEvent
from whywait.kernel.model import Ref, Task
from whywait.kernel.model import Scope as KernelScope
from whywait.kernel.state import ScopeState
from whywait.runtime import acts
from whywait.runtime.blocking import Blocking
from whywait.runtime.core import Core
from whywait.runtime.execution import Execution, Waiter
from whywait.runtime.handle import Handle
from whywait.runtime.journal import Events, Listener
from whywait.runtime.lazy import Lazy
from whywait.runtime.lazy import end as end_lazy
from whywait.runtime.remember import teller
from whywait.runtime.settings import Settings
from whywait.runtime.terms import ScopeRecord
from whywait.support.logger import Log, log
from whywait.support.threads import refuse_green_threads
from whywait.task.parts import parts_of
from whywait.task.streams import Stream, check_name
from whywait.task.surroundings import inside_of

if TYPE_CHECKING:
    from pathlib import Path

    from whywait.kernel.snapshot import Most, Snapshot
    from whywait.observe.explain import Why
    from whywait.observe.history import History
    from whywait.observe.report import Report
    from whywait.task.parts import Part

_tokens = itertools.count(1)


class CoreServices(Core):
    """The core with its engines, and with all that is asked of it; what an authority has inside."""

    def __init__(self, settings: Settings, record: str | Path | None = None, log: Log = log) -> None:
        """Start with an empty kernel and the default engine."""
        refuse_green_threads()
        self.history = _open_history(settings.history, log)  # before anything has to be closed: it may be refused
        super().__init__(settings, record, log)
        if self.history is not None:
            self.tap(teller(self.kernel, self.history))
        self.lazies: list[Lazy[Any]] = []  # those that are made, in that order
        self.token = next(_tokens)  # tells the refs of this authority from those of others
        self.engines = Engines(self, settings.engine)

    # For running tasks and their engines

    def note(self, execution: Execution, kind: str, details: tuple[tuple[str, Any], ...]) -> None:
        """Record an event of a handler, a worker or a stream."""
        self.command(self.kernel.note, execution, kind, details)

    def interrupt(self, execution: Execution) -> None:
        """Let the body of a task know at once that a part of the task has failed."""
        execution.engine.abort(execution)

    def loop_closed(self, engine: Engine) -> None:
        """End the pending tasks of an engine whose event loop has ended."""
        self.command(acts.loop_closed, self, engine)

    def stream_of(self, execution: Execution, name: str) -> Stream:
        """Return a stream of a task, made at its first use; it ends with the task."""
        check_name(name)
        with self.lock:
            streams: dict[str, Stream] = inside_of(execution).streams
            if name in streams:
                return streams[name]
        stream = Stream(execution.label, name)
        execution.ends_with(stream.close)
        with self.lock:  # last: no reader finds a stream without an end
            return streams.setdefault(name, stream)

    def open_stream(self, execution: Execution, name: str, limit: int) -> Stream:
        """Return a stream for a producer; the first one says how many chunks it may keep."""
        stream = self.stream_of(execution, name)
        if stream.open(limit):
            self.note(execution, Kind.STREAM_OPENED, (("stream", name), ("limit", limit)))
        return stream

    def spawn_process(self, execution: Execution, fn: Callable[..., Any], args: tuple[Any, ...]) -> Part:
        """Start a worker of a task in a process of its own."""
        from whywait.engines.process.hired import hire
        from whywait.engines.process.process import identity_of

        return hire(parts_of(execution), execution, identity_of(execution), fn, args)

    def resize(
        self, hard: Mapping[str, int], soft: Mapping[str, int], devices: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Set limits that have changed: ``slot``, or the name of a resource; and the units of devices, by kind."""
        self.command(acts.resize, self, hard, soft, devices or {})

    # For handles

    @property
    def pause_timeout_s(self) -> float:
        """How long a running task may take to its next checkpoint when it is paused."""
        return self.settings.pause_timeout

    def cancel_pending(self, executions: Iterable[Execution]) -> None:
        """End those tasks at once that can be ended so, without asking a body."""
        self.command(acts.cancel_pending, self, executions)

    def pause(self, execution: Execution, tell: Callable[[], object]) -> bool:
        """Pause a task; if it runs, return True and call ``tell`` when it has parked or will not."""
        return self.command(acts.pause, self, execution, tell)

    def resume(self, execution: Execution) -> None:
        """Bring a paused task back to where it was."""
        self.command(self.kernel.resume, execution)

    def blocks(self, execution: Execution, wait: Blocking, /) -> None:
        """Record that the body of a task waits for the ends of others; the last one that has not ended is told of."""
        self.command(acts.block, self, execution, wait)

    def unblocks(self, execution: Execution, wait: Blocking, waiter: Waiter | None, /) -> bool:
        """Record that it does no more; if it has to wait for its slot, return True and release ``waiter`` then."""
        return self.command(acts.unblock, self, execution, wait, waiter)

    def why(self, execution: Execution) -> Why:
        """Return why a task waits, or what it does, or how its whole wait divided, over all attempts."""
        from whywait.observe.explain import in_words

        with self.lock:
            self.check_whole()
            why = self.kernel.why(monotonic_ns(), execution)
        if why.running_ns is not None:
            why = replace(why, placement=execution.engine.placement(execution))
        return in_words(why)

    # Looking things up

    def find(self, ref: Ref | str) -> Handle[Any]:
        """Return the handle of a living task by its ref or id."""
        with self.lock:
            self.check_whole()
            found = self._find_named(ref) if isinstance(ref, str) else self._find_numbered(ref)
            assert isinstance(found, Handle), "all tasks of this kernel are"
            return found

    def _find_named(self, name: str) -> Task:
        found = self.kernel.find(name)
        if isinstance(found, str):
            raise StaleRef(f"task {name!r} has ended ({found}): only its handle knows more")
        return found

    def _find_numbered(self, ref: Ref) -> Task:
        if not isinstance(ref, Ref):
            raise UnknownTask(f"a task is looked up by its ref or its id, not by {ref!r}")
        if ref.authority != self.token:
            raise ForeignRef(f"{ref} belongs to another authority")
        scope = self.kernel.scopes.get(ref.scope)
        task = scope.tasks.get(ref.number) if scope else None
        if task is not None:
            return task
        if 0 < ref.number <= self.kernel.stats.numbered:
            raise StaleRef(f"{ref} is no longer valid: its task has ended or was retried under a new ref")
        raise UnknownTask(f"{ref} was never given out")

    def find_or_ended(self, ref: Ref | str) -> Handle[Any] | None:
        """Return a living task by its ref, an earlier attempt's too, or its id; None if the task has ended (X5)."""
        with self.lock:
            try:
                return self.find(ref)
            except StaleRef:
                return self._retried(ref.number) if isinstance(ref, Ref) else None
            except UnknownTask:
                if isinstance(ref, str) and self.kernel.was_given_out(ref):
                    return None
                raise

    def _retried(self, number: int) -> Handle[Any] | None:
        """Return the living task of which an attempt had this number; one after the other is looked at."""
        living: list[Any] = self.kernel.living()
        return next((task for task in living if any(each.number == number for each in task.earlier)), None)

    def find_scope(self, key: str) -> ScopeRecord:
        """Return the living scope of a key."""
        self.forget_scopes()
        with self.lock:
            record, keys = self.scopes.get(key), list(self.scopes)
        if record is None:
            known = ", ".join(map(repr, keys))
            raise UnknownScope(f"no living scope has the key {key!r}; there are {known}")
        return record

    def forget_scopes(self) -> None:
        """Let go of scopes that are DISPOSED."""
        with self.lock:
            over = (key for key, each in self.scopes.items() if each.kernel_scope.state == ScopeState.DISPOSED)
            for key in tuple(over):
                del self.scopes[key]

    # Lazy resources

    def lazy_made(self, lazy: Lazy[Any]) -> None:
        """Keep a resource that was made, to be closed with its scope."""
        with self.lock:
            self.lazies.append(lazy)

    def close_lazies(self) -> None:
        """Close the resources of scopes that are DISPOSED, the one that was made last first; outside the lock."""
        if self.lazies:
            with self.lock:
                over = tuple(each for each in self.lazies if each.is_over)
                self.lazies = list(filter(lambda each: each not in over, self.lazies))
            for lazy in reversed(over):
                end_lazy(lazy, self.log)

    def close_lazies_later(self, condition: Callable[[], bool]) -> None:
        """Close them as soon as ``condition`` holds, in a thread of its own: a scope has yet to be DISPOSED."""
        if self.lazies:
            self.watch(condition, threading.Thread(target=self.close_lazies, name="whywait-closing", daemon=True).start)

    def set_periodic_enabled(self, id: str, enabled: bool, *, immediately: bool = False) -> None:
        """Switch a periodic on (from its next tick, or now if ``immediately``) or off, by ``id`` or ``scope/id``."""
        self.command(acts.set_periodic_enabled, self, id, enabled, immediately)

    # Pictures of now and of the past

    def picture(self, execution: Execution) -> Snapshot:
        """Return a picture of the scope of a running task, and of what is below it."""
        return self.snapshot(execution.scope)

    def snapshot(self, scope: KernelScope, most: Most | None = None) -> Snapshot:
        """Return a picture of one scope and what is below it, bounded if ``most`` is given."""
        with self.lock:
            self.check_whole()
            return self.kernel.snapshot(monotonic_ns(), scope, most)

    def stats(self) -> dict[str, Any]:
        """Return counters: active, queued (READY), not ready, submitted, by outcome, drops, waits, starvation."""
        with self.lock:
            self.check_whole()
            kernel = self.kernel
            alive = sum(len(scope.tasks) for scope in kernel.scopes.values())
            queued = sum(map(len, kernel.lanes_in_use()))
            return {
                "active": len(kernel.running),
                "queued": queued,
                "not_ready": alive - len(kernel.running) - queued,
                **kernel.stats.to_dict(),
                "starvation": kernel.starvation.signals(monotonic_ns(), kernel.lanes_in_use())._asdict(),
                "starvation_promotions": kernel.stats.promotions,
            }

    @property
    def last_seq(self) -> int:
        """The seq of the latest event; it can be asked for without a lock."""
        return self.kernel.seq

    def raw_events(self, since: int, limit: int | None = None) -> tuple[list[RawEvent], int]:
        """Return up to ``limit`` remembered events after ``since``, and how many before them are forgotten."""
        with self.lock:
            return self.journal.since(since, limit)

    def tap(self, fn: Callable[[RawEvent], object]) -> Callable[[], None]:
        """Call ``fn`` with every raw event at once, in the thread that caused it, under the lock; return an end."""
        return self._listen(self.journal.tap, fn)

    def subscribe(self, fn: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``fn`` with every event from now on, in order and without the lock; return a function that ends it."""
        return self._listen(self.journal.subscribe, fn)

    def _listen(self, add: Callable[[Listener], Callable[[], None]], fn: Listener) -> Callable[[], None]:
        with self.lock:
            end = add(fn)

        def end_under_lock() -> None:
            with self.lock:
                end()

        return end_under_lock

    def waiting_report(self) -> Report:
        """Return where the waiting of the run went, by cause and by holder, and how full slots and budget were."""
        from whywait.observe.report import kernel_account, make_report

        with self.lock:
            self.check_whole()
            raw, skipped = self.raw_events(0)
            last_ns = next((event[1] for event in reversed(raw) if event[4] is not None), None)  # of a task
            totals = kernel_account(self.kernel, monotonic_ns(), self.began_ns, last_ns)
        return make_report(totals, Events(raw), skipped)

    def close(self) -> None:
        """Release the clock, the engines, the record and the history; nothing runs any more."""
        self.clock.close()
        self.engines.close()
        self.kernel.close()
        if self.history is not None:
            self.history.close()


def _open_history(path: str | None, log: Log) -> History | None:
    if path is None:
        return None
    from whywait.observe.history import History

    return History(path, log)
