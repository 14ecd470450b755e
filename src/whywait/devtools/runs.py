"""The run that a server shows: a living authority, or with ``saved.py`` what a file remembers of one."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Any, Final

from whywait.devtools.feed import Feed
from whywait.kernel import snapshot
from whywait.kernel.order import Aging
from whywait.runtime.authority import Authority, core_of
from whywait.runtime.services import CoreServices
from whywait.support.version import __version__

MOST: Final = snapshot.Most(
    running=200, pending=0, lanes=100, in_lane=10, holders=10, asked=2_000, units=200, scopes=500
)


def overview(core: CoreServices) -> dict[str, Any]:
    """Return a bounded picture of an authority now, made under the lock in well under a millisecond."""
    return _as_dict(*_picture(core))


def _picture(core: CoreServices) -> tuple[snapshot.Snapshot, int]:
    with core.lock:
        return snapshot.take(core.kernel, monotonic_ns(), core.kernel.root, MOST), core.last_seq


def _as_dict(picture: snapshot.Snapshot, seq: int) -> dict[str, Any]:
    return {**picture.to_dict(), "seq": seq}


class Run:
    """What a living and a saved run have in common."""

    authority: Authority | None = None
    core: CoreServices | None = None

    def __init__(self, name: str, *, control: bool) -> None:
        """Name the run; ``control``: it may be changed from outside."""
        self.name = name
        self.control = control
        self.run_id = secrets.token_hex(8)  # tells a page whether it still looks at the same run
        self.version = __version__


async def _at_once() -> None:
    """Do nothing: what is done to a run in memory needs no disk."""


class LiveRun(Run):
    """A run in this process."""

    authority: Authority
    core: CoreServices

    def __init__(self, authority: Authority, name: str, *, control: bool) -> None:
        """Show an authority, through its core where its methods do not say enough."""
        super().__init__(name, control=control)
        self.authority = authority
        self.core = core_of(authority)
        self.can_suspend = True  # whether a suspended scope is still one after the next start
        self.kept: Callable[[], Awaitable[object]] = _at_once  # returns when what was done will outlast this process

    def make_feed(self, kept: int) -> Feed:
        """Return the feed of the authority's events; called on the thread that will read them."""
        return Feed(self.core, kept)

    def overview(self) -> dict[str, Any]:
        """Return a bounded picture of now."""
        return overview(self.core)

    def moment(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the counters and the picture of now, both under one lock."""
        with self.core.lock:
            stats, picture = self.authority.stats(), _picture(self.core)
        return stats, _as_dict(*picture)

    def report(self) -> dict[str, Any]:
        """Return where the waiting went so far."""
        return self.authority.report().to_dict()

    def settings(self) -> dict[str, Any]:
        """Return slots, order, backfill and the budget."""
        settings = self.core.settings
        order = settings.order
        aging = {"every_s": order.every, "boost": order.boost, "cap": order.cap} if isinstance(order, Aging) else None
        return {
            "slots": settings.limits.slots,
            "order": type(order).__name__.lower(),
            "aging": aging,
            "backfill": settings.backfill,
            "queue_limit": settings.limits.queue_limit,
        }
