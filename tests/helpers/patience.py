"""Waiting for what comes about elsewhere, with a limit so generous that only what never comes reaches it."""

import asyncio
import gc
import sys
import time

PATIENCE_S = 30.0  # how long anything may take on a loaded machine
TICK_S = 0.003
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()


def until(condition, what="what was waited for"):
    """Wait until the condition holds; return its value. ``what`` is it in words, or a function that tells."""
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what() if callable(what) else what} did not come in {PATIENCE_S:g} s"
        time.sleep(TICK_S)
    return value


def until_gone(*references):
    """Wait until what weak references lead to is gone.

    A free-threaded interpreter lets go of what another thread has made when that thread wakes, or when the
    collector runs.
    """

    def are_gone():
        if FREE_THREADED:
            gc.collect()
        return all(each() is None for each in references)

    until(are_gone, "the end of what is referred to")


async def until_async(condition):
    """Wait until the condition holds, in a coroutine; whoever calls has a limit of its own."""
    while not condition():  # noqa: ASYNC110 - the condition is a mark in a folder: there is no event to wait for
        await asyncio.sleep(TICK_S)
