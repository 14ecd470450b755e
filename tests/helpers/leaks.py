"""What this process holds: threads, children, open files, event loops and temporary files, before and after."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 10.0  # what is still there after this is taken to stay
GLANCE_S = 0.2  # so long a thread may take to end before the collector is called


class Held(NamedTuple):
    """What is held at a moment, each thing with a name that says what it is."""

    threads: frozenset[Any]
    children: frozenset[str]
    files: frozenset[str]
    loops: frozenset[str]
    temporary: frozenset[str]

    @classmethod
    def now(cls) -> Held:
        return cls(
            frozenset(_threads()),
            frozenset(_children()),
            frozenset(_files()),
            frozenset(repr(loop) for loop in list(_loops) if not loop.is_closed()),
            frozenset(_temporary()),
        )

    def since(self, before: Held, kinds: tuple[str, ...]) -> list[str]:
        """Return what has come since, in words."""
        return [
            f"{kind}: {thing}"
            for kind, now, then in zip(self._fields, self, before, strict=True)
            if kind in kinds
            for thing in sorted(map(str, now - then))
        ]


def left_since(before: Held, kinds: tuple[str, ...] = Held._fields) -> list[str]:
    """Return what is held now and was not before, after giving it time to go."""
    start = time.monotonic()
    collected = False
    while left := Held.now().since(before, kinds):
        passed = time.monotonic() - start
        if passed > PATIENCE_S:
            return left
        if passed > GLANCE_S and not collected:
            gc.collect()
            collected = True
        time.sleep(0.001)
    return []


_loops: weakref.WeakSet[asyncio.BaseEventLoop] = weakref.WeakSet()


def watch_loops() -> None:
    """Take note of every event loop that is made from now on."""
    original = asyncio.BaseEventLoop.__init__

    def noted(loop: asyncio.BaseEventLoop) -> None:
        original(loop)
        _loops.add(loop)

    asyncio.BaseEventLoop.__init__ = noted  # type: ignore[method-assign]


def _threads() -> list[threading.Thread]:
    """Return the threads that ``threading`` has made; what runs the tests has others, which show once they log."""
    return [thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)]


def _children() -> set[str]:
    """Return the pids of this process's children, those that nobody has waited for included."""
    pids: set[str] = set()
    for each in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            pids.update(each.read_text(encoding="utf-8").split())
    return pids


def _files() -> set[str]:
    """Return the open file descriptors with what they lead to, but for the standard ones, which pytest turns about."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them
            if fd.name not in {"0", "1", "2"}:
                found.add(f"{fd.name} -> {fd.readlink()}")
    return found


def _temporary() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).iterdir()}
