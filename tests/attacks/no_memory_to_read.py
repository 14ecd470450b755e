"""A program that runs out of memory at each allocation of what its main thread asks; it tells how often it did."""

import _testcapi
import contextlib
import logging
import sys
import threading

from whywait import Authority, WhywaitError

PATIENCE_S = 10.0
ALLOCATIONS = 60
SPARE = 2100  # so many tuples of a size does Python keep for reuse, which takes no memory


def attack(authority, ask, missing):
    """Ask while allocations fail, from each one on; return how often that failed."""
    failures = 0
    for first in range(ALLOCATIONS):
        kept = [(each,) * size for size in range(1, 6) for each in range(SPARE)]
        _testcapi.set_nomemory(first, first + missing)
        try:
            ask()
        except BaseException:  # noqa: BLE001 - SystemError too, and what its handling raises
            _testcapi.remove_mem_hooks()
            failures += 1
        _testcapi.remove_mem_hooks()
        kept.clear()
        assert not authority._core._lock._is_owned(), (ask, first)
    return failures


logging.disable()
threading.excepthook = sys.unraisablehook = lambda _: None
gate = threading.Event()
with Authority(slots=1) as authority:
    held = authority.submit(gate.wait, id="held")
    waiting = authority.submit(int, id="waiting", after=[held])
    asks = (
        authority.stats,
        authority.snapshot,
        authority.events,
        waiting.why,
        lambda: waiting.result(0),
        lambda: waiting.add_done_callback(int),
        lambda: authority.scope("another"),
        lambda: authority.cancel("unknown"),
        waiting.pause,
        waiting.resume,
    )
    for ask in asks:  # what is imported or looked up once is there then
        with contextlib.suppress(LookupError, TimeoutError, WhywaitError):
            ask()
    failures = [attack(authority, ask, missing) for missing in (1, 30) for ask in asks]
    gate.set()
    held.result(PATIENCE_S)
    print(sum(failures))
