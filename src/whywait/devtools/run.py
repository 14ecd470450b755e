"""The run that a server shows: a living authority, or what a file remembers of one."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from whywait.devtools import overview
from whywait.devtools.feed import Feed
from whywait.devtools.source import LiveAuthority, LiveCore
from whywait.kernel.order import Aging
from whywait.support.version import __version__


class Run:
    """What the handlers ask for that is not in the events."""

    authority: LiveAuthority | None = None
    core: LiveCore | None = None

    def __init__(self, name: str, *, control: bool) -> None:
        """Name the run; ``control``: it may be changed from outside."""
        self.name = name
        self.control = control
        self.run_id = secrets.token_hex(8)  # tells a page whether it still looks at the same run
        self.version = __version__

    def make_feed(self, kept: int) -> Feed:
        """Return the events of this run; called on the thread that will read them."""
        raise NotImplementedError

    def overview(self) -> dict[str, Any]:
        """Return a bounded picture of now."""
        raise NotImplementedError

    def moment(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the counters and the picture of one moment: now."""
        raise NotImplementedError

    def report(self) -> dict[str, Any]:
        """Return where the waiting went."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return what the run was told to keep to."""
        return {}


async def _at_once() -> None:
    """Wait for nothing: a run in memory keeps what it is told."""


class LiveRun(Run):
    """A run in this process."""

    authority: LiveAuthority
    core: LiveCore

    def __init__(self, authority: LiveAuthority, core: LiveCore, name: str, *, control: bool) -> None:
        """Show an authority, through its core where its methods do not say enough."""
        super().__init__(name, control=control)
        self.authority = authority
        self.core = core
        self.can_suspend = True  # whether a suspended scope is still one after the next start
        self.kept: Callable[[], Awaitable[object]] = _at_once  # returns when what was done will outlast this process

    def make_feed(self, kept: int) -> Feed:
        """Return the feed of the authority's events."""
        return Feed(self.core, kept)

    def overview(self) -> dict[str, Any]:
        """Return a bounded picture of now."""
        return overview.take(self.core)

    def moment(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the counters and the picture of now, both under one lock."""
        return overview.take_with(self.core, self.authority.stats)

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
