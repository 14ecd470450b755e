"""A program with types from end to end: mypy and pyright, both strict, find nothing wrong with it.

python3 examples/typed/pipeline.py
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from typing import assert_type

from whywait import (
    Aging,
    Authority,
    Call,
    Command,
    CommandResult,
    Executor,
    Handle,
    Priority,
    QueueFull,
    Rejected,
    Retry,
    Scope,
    Simulation,
    Strict,
    Why,
    current,
)


@dataclass(frozen=True)
class Clip:
    """What is cut."""

    name: str
    seconds: float


def download(url: str) -> Clip:
    """Return a clip."""
    return Clip(url.rpartition("/")[2], 2.5)


def measure(clip: Clip) -> float:
    """Return how long it is, and tell of it meanwhile."""
    context = current()
    context.checkpoint()
    context.emit(f"measuring {clip.name}")
    return clip.seconds


async def announce(seconds: float) -> str:
    """Return a line of text."""
    await asyncio.sleep(0)
    return f"{seconds:g} s"


def in_threads() -> float:
    """Run tasks on threads."""
    order: Aging | Strict = Aging(every=2.0, boost=5, cap=None)
    with Authority(slots=2, cpu=2, ram="1GB", resources={"licence": 1}, order=order) as authority:
        scope = authority.scope("clips", slots=1, on_error="continue")
        assert_type(scope, Scope)
        clip = scope.submit(download, "https://example.org/cat.mp4", id="download", retry=Retry(2, backoff=0.1))
        assert_type(clip, Handle[Clip])
        length = scope.submit(measure, clip, priority=Priority.HIGH, cpu=1, resources={"licence": 1}, timeout="5s")
        assert_type(length, Handle[float])
        why = length.why()
        assert_type(why, Why)
        print(why)
        for chunk in length.stream():
            print(chunk)
        assert_type(length.result(timeout=10), float)
        batch = scope.submit_many([Call(print, ("one",), {"priority": "low"}), Call(print, ("two",))])
        for handle in batch:
            handle.result()
        try:
            authority.submit(print, "never", cpu=3)
        except QueueFull:
            raise
        except Rejected as refusal:
            print(refusal.check, refusal.cause)
        listing = authority.submit(Command(["echo", "hello"]))
        assert_type(listing, Handle[CommandResult])
        print(listing.result().stdout)
        return length.result()


async def on_a_loop() -> str:
    """Run coroutines and functions side by side."""
    async with Authority(slots=2) as authority:
        length = authority.submit(measure, Clip("dog", 1.5))
        text = await authority.submit(announce, length)
        assert_type(text, str)
        return text


def as_an_executor() -> int:
    """Use it where a thread pool is wanted."""
    with Executor(max_workers=2, queue_limit=10) as pool:
        future = pool.submit(divmod, 7, 2)
        assert_type(future, Future[tuple[int, int]])
        print(pool.why(future))
        return sum(pool.map(len, ["a", "bc"])) + future.result()[0]


def in_virtual_time() -> dict[str, str]:
    """Simulate."""
    result = Simulation({"tasks": [{"id": "a", "at_ms": 0, "duration_ms": 5}]}, slots=1).run()
    return result.final


def main() -> None:
    """Run all of it."""
    print(in_threads(), asyncio.run(on_a_loop()), as_an_executor(), in_virtual_time())


if __name__ == "__main__":
    main()
