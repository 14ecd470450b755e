"""Two threads that meet at chosen lines: one is held at a line of the project's code while the other goes on."""

from __future__ import annotations

import sys
import threading
from typing import Any

from patience import PATIENCE_S
from whywait import Authority

OURS = "whywait"
ENDS = ("TASK_FINISHED", "TASK_CANCELLED")
PAUSE_S = 0.001  # so long one may go on alone: it is through by then, is held, or waits for what the other one has


class Player:
    """A thread that can be held at the n-th line it runs of the project's code, counted from ``begin``.

    It does not raise there: at a line that says ``try:``, where no exception comes from but one of a tracer, no
    handler of its function would see it, and the lock would be held for ever.
    """

    def __init__(self, line: int) -> None:
        self.line = line
        self.seen = 0
        self.counts = False
        self.where: str | None = None
        self.settled = threading.Event()  # it is held, or through
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
        self.settled.clear()
        self._go.set()
        if self.counts:
            self.settled.wait(PAUSE_S)

    def trace(self, frame: Any, event: str, arg: Any) -> Any:
        if not (frame.f_globals.get("__name__") or "").startswith(OURS):
            return None
        if self.counts and event == "line":
            self.seen += 1
            if self.seen > self.line and self.where is None:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                self.settled.set()
                self._go.wait(PATIENCE_S)
        return self.trace


def meet(engine, act, finish_line, act_line, *, comes_first, goes_on_first=None, fails=False):
    """Let a body end and ``act`` on its handle, each held at a line; return where they were held, and how it ended."""
    finisher, actor = Player(finish_line), Player(act_line)
    started, end = threading.Event(), threading.Event()
    ended = []

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

    def play():
        sys.settrace(actor.trace)
        actor.begin()
        try:
            act(scope, handle)
        finally:
            sys.settrace(None)
            actor.through()

    threading.settrace(finisher.trace)
    try:
        with Authority(slots=1, engine=engine, grace=PATIENCE_S) as authority:
            scope = authority.scope("work")
            handle = scope.submit(body)
            assert started.wait(PATIENCE_S)
            threading.settrace(None)
            handle.add_done_callback(told)
            if comes_first == "finisher":
                end.set()
                assert finisher.settled.wait(PATIENCE_S)
            thread = threading.Thread(target=play)
            thread.start()
            actor.settled.wait(PAUSE_S)
            end.set()
            finisher.settled.wait(PAUSE_S)
            for player in (actor, finisher) if goes_on_first == "actor" else (finisher, actor):
                player.go_on()
            thread.join(PATIENCE_S)
            error = handle.exception(PATIENCE_S)
            assert authority.submit(int).result(PATIENCE_S) == 0
            number = handle.ref.number
            ends = [event.kind for event in authority.events() if event.kind in ENDS and event.number == number]
    finally:
        threading.settrace(None)
    held = (finisher.where, actor.where)
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
    scope.dispose()
