"""Two threads that meet at chosen lines: one is held at a line of the project's code while the other goes on."""

from __future__ import annotations

import sys
import threading
from typing import Any

PATIENCE_S = 10.0
OURS = "whywait"


class Player:
    """A thread that can be held at the n-th line it runs of the project's code, counted from ``begin``.

    ``settled`` says that it has nothing more to do without the other: it is held, waits for the lock, or is through.
    """

    def __init__(self, line: int) -> None:
        self.line = line
        self.seen = 0
        self.counts = False
        self.where: str | None = None
        self.lock: Any = None
        self.has_lock = False  # where it is held
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
                self.seen += 1
                if self.seen > self.line and self.where is None:
                    self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                    self.has_lock = self.lock is not None and self.lock._is_owned()
                    self.settled.set()
                    assert self._go.wait(PATIENCE_S), f"nobody lets it go on from {self.where}"
        return self.trace


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
