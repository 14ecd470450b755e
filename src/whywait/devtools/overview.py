"""The overview: a bounded picture of what runs and what waits, made under the lock in well under a millisecond."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Final

from whywait.devtools.source import LiveCore
from whywait.kernel import snapshot

MOST: Final = snapshot.Most(
    running=200, pending=0, lanes=100, in_lane=10, holders=10, asked=2_000, units=200, scopes=500
)


def take(core: LiveCore) -> dict[str, Any]:
    """Picture an authority now, as a JSON-ready dict."""
    kernel = core.kernel
    with core.lock:
        picture, seq = snapshot.take(kernel, monotonic_ns(), kernel.root, MOST), core.last_seq
    return {**picture.to_dict(), "seq": seq}
