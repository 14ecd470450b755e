"""What the tasks of the benchmarks do; every contestant runs the same bodies.

Each takes its argument and then the results of what it depends on, which it ignores. They live in a module of their
own so that worker processes find them by name.
"""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

KERNEL_LIMIT: Final = 64 << 20
GATE = threading.Event()  # what `held` waits for, in this process
_ZEROES: list[memoryview] = []


def nothing(*_: object) -> None:
    """Do nothing."""


async def nothing_async(*_: object) -> None:
    """Do nothing, as a coroutine."""


def kernel(size: int, *_: object) -> None:
    """Compute for a time in proportion to ``size`` bytes, in one C call that releases the GIL."""
    if not _ZEROES:
        _ZEROES.append(memoryview(b"whywait." * (KERNEL_LIMIT // 8)))
    zlib.crc32(_ZEROES[0][:size])


def compute(steps: int, *_: object) -> None:
    """Compute for a time in proportion to ``steps``, in Python.

    With small constants: a free-threaded Python counts references to the larger ones of a compiled module, and threads
    that use the same one wait for each other in each step.
    """
    number = 0
    for each in range(steps):
        number = (number * 31 + each) & 0xFF


def pause(seconds: float, *_: object) -> None:
    """Sleep."""
    time.sleep(seconds)


def stamped(seconds: float, *_: object) -> tuple[float, float]:
    """Sleep and return when that began and ended."""
    begin = time.perf_counter()
    time.sleep(seconds)
    return begin, time.perf_counter()


async def stamped_async(seconds: float, *_: object) -> tuple[float, float]:
    """Do the same, as a coroutine."""
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    return begin, time.perf_counter()


def held(*_: object) -> None:
    """Keep a worker thread of this process until ``GATE`` is set."""
    GATE.wait()


def held_by_file(path: str, *_: object) -> None:
    """Keep a worker of any process until a file is there."""
    while not Path(path).exists():
        time.sleep(0.005)


_AS_COROUTINE: Final[dict[Callable[..., Any], Callable[..., Awaitable[Any]]]] = {
    nothing: nothing_async,
    stamped: stamped_async,
}


def as_coroutine(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return the body that does the same as a coroutine."""
    return _AS_COROUTINE[fn]
