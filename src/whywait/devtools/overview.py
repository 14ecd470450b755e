"""The overview: a bounded picture of what runs and what waits, made under the lock in well under a millisecond."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final, TypeVar

from whywait.devtools.source import LiveCore
from whywait.kernel import snapshot

T = TypeVar("T")
MOST: Final = snapshot.Most(
    running=200, pending=0, lanes=100, in_lane=10, holders=10, asked=2_000, units=200, scopes=500
)


def take(core: LiveCore) -> dict[str, Any]:
    """Picture an authority now, as a JSON-ready dict."""
    return take_with(core, lambda: None)[1]


def take_with(core: LiveCore, look: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Return what ``look`` returns, and the picture of an authority at that very moment."""
    kernel = core.kernel
    with core.lock:
        seen = look()
        picture, seq = snapshot.take(kernel, monotonic_ns(), kernel.root, MOST), core.last_seq
    return seen, {**picture.to_dict(), "seq": seq}
