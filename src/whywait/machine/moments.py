"""Moments of a job's life, by two clocks: a wall clock may be set, the clock that counts from the boot may not."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Moment(NamedTuple):
    """An instant: seconds since 1970 by the wall clock, which boot it was in, and seconds since that boot."""

    wall: float
    boot: str | None = None  # None: not known
    since_boot: float = 0.0


def now() -> Moment:
    """Return the present moment."""
    return Moment(time.time(), _boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))


def seconds_between(earlier: Moment, later: Moment) -> float:
    """Return the seconds between two moments, never below 0; only across boots the wall clock counts."""
    if earlier.boot is not None and earlier.boot == later.boot:
        return max(0.0, later.since_boot - earlier.since_boot)
    return max(0.0, later.wall - earlier.wall)


@cache
def _boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()
