"""Durations: from what people write to exact nanoseconds."""

from __future__ import annotations

import math
import re
from typing import Final

from whywait.errors import ConfigError, shown

Seconds = int | float | str  # a number, or "500ms", "5m"

NS: Final = 1_000_000_000  # in a second
LONGEST_S: Final = 10 * 365 * 86_400  # ten years: a duration that is longer is a slip of the keyboard

_UNITS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign of keyboards
    "μs": 1_000,  # the Greek letter, which looks the same and is what some editors write
    "ms": 1_000_000,
    "s": NS,
    "m": 60 * NS,
    "h": 3600 * NS,
    "d": 86_400 * NS,
}
# Digits are bounded, so that a hostile string costs nothing to refuse.
_PART: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*(ns|us|µs|μs|ms|s|m|h|d)\s*")
_EXPECTED: Final = 'a number of seconds >= 0 or a string such as "500ms", "2s", "5m" or "1h30m"'


def parse_duration_ns(value: object) -> int:
    """Turn seconds (``2``, ``0.5``) or ``"500ms"``, ``"5m"``, ``"1h30m"`` into nanoseconds; else raise ConfigError."""
    ns = _in_ns(value)
    if ns > LONGEST_S * NS:
        raise ConfigError(f"{shown(value)} is too long for a duration: expected at most ten years")
    return ns


def in_seconds(name: str, value: Seconds) -> float:
    """Return a duration in seconds; a refusal names what it is for."""
    try:
        ns = parse_duration_ns(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    return value if isinstance(value, float) else ns / NS


def patience_s(timeout: Seconds | None) -> float | None:
    """Return how many seconds a ``timeout`` leaves to wait; None: no end. A number stays as it is."""
    return in_seconds("timeout", timeout) if isinstance(timeout, str) else timeout


def _in_ns(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value) * NS
    is_number = isinstance(value, float) and math.isfinite(value) and value >= 0
    if isinstance(value, float) and is_number and value.is_integer():
        return int(value) * NS
    from fractions import Fraction  # noqa: PLC0415 - it takes long to load, and whole numbers need none

    if is_number:
        written = Fraction(repr(value))  # the decimal, not its binary neighbour
        return round(written * NS)
    if isinstance(value, str):
        total, position, text = Fraction(0), 0, value.strip()
        while match := _PART.match(text, position):
            total += Fraction(match[1]) * _UNITS[match[2]]
            position = match.end()
        if text and position == len(text):
            return round(total)
    raise ConfigError(f"{shown(value)} is not a duration: expected {_EXPECTED}")
