"""A program that runs out of memory at each allocation of a task in turn; its last word is how often it did."""

import _testcapi
import logging
import sys
import threading
import time

from whywait import Authority, AuthorityBroken
from whywait.kernel import invariants
from whywait.runtime.authority import core_of

PATIENCE_S = 10.0
ALLOCATIONS = 250
SPARE = 2100  # so many tuples of a size does Python keep for reuse, which takes no memory
# The last: there was no memory for another attempt.
EXPECTED = (AuthorityBroken, MemoryError, RuntimeError, SystemError, ValueError)
# How Python says it of a lock, and of the frame of a call.
SAYS = {RuntimeError: "can't allocate lock", SystemError: "error return without exception set"}


def body(ran, attempts):
    """Fail but for the last attempt."""
    ran.append(None)
    if len(ran) < attempts:
        raise ValueError


def attempt(first, missing, attempts):
    """Submit a task and wait for it while allocations fail; return whether one did."""
    ran, handle, failed = [], None, None
    authority = Authority(slots=2)
    # What the options come to is known then. Python 3.11 crashes without memory to go through the items of a dict.
    authority.submit(int, retry=attempts - 1).result(PATIENCE_S)
    kept = [(each,) * size for size in range(1, 6) for each in range(SPARE)]
    _testcapi.set_nomemory(first, first + missing)
    try:
        handle = authority.submit(body, ran, attempts, retry=attempts - 1)
        handle.result(PATIENCE_S)
    except EXPECTED as error:
        failed = error
    finally:
        _testcapi.remove_mem_hooks()
    if SAYS.get(type(failed), "") not in str(failed):
        raise failed
    assert len(ran) <= attempts, first
    try:
        assert authority.submit(int).result(PATIENCE_S) == 0, first
        if handle is not None:
            handle.exception(PATIENCE_S)
        with core_of(authority).lock:
            invariants.check(core_of(authority).kernel, 1 << 62, rested=False)
        until = time.monotonic() + PATIENCE_S
        while authority.stats()["active"]:
            assert time.monotonic() < until, f"a task is RUNNING for ever after allocation {first}"
            time.sleep(0.001)
    except AuthorityBroken:
        assert handle is None or isinstance(handle.exception(PATIENCE_S), AuthorityBroken | MemoryError | None), first
    kept.clear()
    authority.dispose(grace=PATIENCE_S)
    return failed is not None


start = threading.Thread.start


def start_with_memory(thread):
    _testcapi.remove_mem_hooks()  # Python itself waits for ever for a thread that gets no memory to begin with
    start(thread)


threading.Thread.start = start_with_memory
logging.disable()
threading.excepthook = lambda _: None  # threads of the engine that got no memory end
sys.unraisablehook = lambda _: None
missing, attempts = map(int, sys.argv[1:])
print(sum(attempt(first, missing, attempts) for first in range(1, ALLOCATIONS)))
