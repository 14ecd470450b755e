"""Two threads that meet at chosen lines: one is held at a line of the project's code while the other goes on."""

from __future__ import annotations

import linecache
import sys
import threading
from typing import Any

from patience import PATIENCE_S
from whywait import Authority
from whywait.kernel import invariants

OURS = "whywait"
ENDS = ("TASK_FINISHED", "TASK_CANCELLED")


class Player:
    """A thread that can be held at the n-th line it runs of the project's code, counted from ``begin``.

    ``settled`` says that it has nothing more to do without the other: it is held, waits for the lock, or is through.
    One that is forgotten goes on by itself. It does not raise: at a line that says ``try:``, where no exception comes
    from but one of a tracer, no handler of its function would see it, and the lock would be held for ever.
    """

    def __init__(self, line: int) -> None:
        self.line = line
        self.seen = 0
        self.counts = False
        self.where: str | None = None
        self.lock: Any = None
        self.has_lock = False  # where it is held
        self.is_forgotten = False  # it was not told to go on
        self.settled = threading.Event()
        self._go = threading.Event()

    def begin(self) -> None:
        """Count from here on; to be called in the player's own thread."""
        self.counts = True

    def through(self) -> None:
        """Count no more: the other need not wait for this one."""
        self.counts = False
        self.settled.set()

    def go_on(self) -> None:
        """Let the player go on from where it is held."""
        self._go.set()

    def wait(self) -> None:
        assert self.settled.wait(PATIENCE_S), f"a player hangs; held at {self.where}"

    def trace(self, frame: Any, event: str, arg: Any) -> Any:
        if not (frame.f_globals.get("__name__") or "").startswith(OURS):
            return None
        if self.counts:
            if event == "call" and frame.f_code.co_name == "wait_for":
                self.settled.set()  # the other one has the lock
            elif event == "line":
                if self._comes_to_taken_lock(frame):
                    self.settled.set()
                self.seen += 1
                if self.seen > self.line and self.where is None:
                    self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                    self.has_lock = self.lock is not None and self.lock._is_owned()
                    self.settled.set()
                    self.is_forgotten = not self._go.wait(PATIENCE_S)
        return self.trace

    def _comes_to_taken_lock(self, frame: Any) -> bool:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if self.lock is None or not line.startswith("with ") or not line.endswith("lock:"):
            return False
        if not self.lock.acquire(blocking=False):
            return True
        self.lock.release()
        return False


def play(player: Player, act: Any) -> threading.Thread:
    """Start a thread that does ``act`` as this player."""

    def run() -> None:
        sys.settrace(player.trace)
        player.begin()
        try:
            act()
        finally:
            sys.settrace(None)
            player.through()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def meet(engine, act, finish_line, act_line, *, comes_first, goes_on_first=None, fails=False):
    """Let a body end and ``act`` on its handle, each held at a line; return where they were held, and how it ended."""
    finisher, actor = Player(finish_line), Player(act_line)
    started, end = threading.Event(), threading.Event()

    def body():
        started.set()
        end.wait(PATIENCE_S)
        finisher.begin()
        if fails:
            raise ValueError
        return "value"

    def told(handle):
        ended.append(handle.outcome)
        finisher.through()

    ended = []
    threading.settrace(finisher.trace)
    try:
        with Authority(slots=1, engine=engine, grace=PATIENCE_S) as authority:
            finisher.lock = actor.lock = authority._core.lock
            scope = authority.scope("work")
            handle = scope.submit(body)
            assert started.wait(PATIENCE_S)
            threading.settrace(None)
            handle.add_done_callback(told)
            if comes_first == "finisher":
                end.set()
                finisher.wait()
            thread = play(actor, lambda: act(scope, handle))
            actor.wait()
            end.set()
            finisher.wait()
            first, second = (actor, finisher) if goes_on_first == "actor" else (finisher, actor)
            if first.where is not None and not second.has_lock:  # else it comes no further than to the lock
                first.settled.clear()
                first.go_on()
                first.wait()
            first.go_on()  # also if it waits for the lock and would be held later
            second.go_on()
            thread.join(PATIENCE_S)
            error = handle.exception(PATIENCE_S)
            assert authority.submit(int).result(PATIENCE_S) == 0
            with authority._core.lock:
                invariants.check(authority._core.kernel, 1 << 62, rested=False)
            number = handle.ref.number
            ends = [event.kind for event in authority.events() if event.kind in ENDS and event.number == number]
    finally:
        threading.settrace(None)
    held = (finisher.where, actor.where)
    assert not finisher.is_forgotten, held
    assert not actor.is_forgotten, held
    assert not thread.is_alive(), held
    assert ended == [handle.outcome], held
    assert len(ends) == 1, held
    if handle.outcome == "success":
        assert (error, handle.result()) == (None, "value"), held
    else:
        assert handle.outcome == ("error" if isinstance(error, ValueError) else "aborted"), held
    return held, handle.outcome


def cancel(scope, handle):
    handle.cancel()


def dispose(scope, handle):
    """Begin to dispose of the scope; the wait for the body that follows is another matter."""
    scope._open._begin_disposal(None)
