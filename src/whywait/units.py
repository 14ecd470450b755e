"""Sizes and durations: from what people write to exact ints, and back to something people read."""

from __future__ import annotations

import math
import re
from typing import Final

from whywait.errors import ConfigError
from whywait.kernel.model import LONGEST_S
from whywait.lazy import fractions

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

_PREFIXES: Final = ("k", "m", "g", "t", "p", "e")
_SIZE_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate(_PREFIXES, 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate(_PREFIXES, 1)},
}
_DURATION_UNITS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign of keyboards
    "μs": 1_000,  # the Greek letter, which looks the same and is what some editors write
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
    "d": 86_400 * NS_PER_S,
}
# Digits are bounded, so that a hostile string costs nothing to refuse.
_NUMBER: Final = r"[0-9]{1,30}(?:\.[0-9]{1,30})?"
_SIZE: Final = re.compile(rf"\s*({_NUMBER})\s*([a-z]{{0,3}})\s*", re.IGNORECASE)
_DURATION_PART: Final = re.compile(rf"({_NUMBER})\s*(ns|us|µs|μs|ms|s|m|h|d)\s*")
_SIZE_EXPECTED: Final = 'an int >= 0 (bytes) or a string such as "512MB" (10^6) or "4GiB" (2^30)'
_DURATION_EXPECTED: Final = 'a number of seconds >= 0 or a string such as "500ms", "2s", "5m" or "1h30m"'
_SHOWN: Final = 60
_ROUNDS_TO_1_S: Final = 999.5
_ROUNDS_TO_60_S: Final = 59_950
# Below so many seconds: the big unit and its size, the small unit and its size.
_CLOCK: Final[tuple[tuple[float, str, int, str, int], ...]] = (
    (3600, "m", 60, "s", 1),
    (86_400, "h", 3600, "m", 60),
    (math.inf, "d", 86_400, "h", 3600),
)
_THOUSAND: Final = 1000
_HUNDRED: Final = 100


def shown(value: object) -> str:
    """Give the value as a message may quote it: JSON's words for constants, and never longer than a line."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:  # turning it into digits may be refused or slow
        return f"an int of {value.bit_length()} bits"
    text = printable((f'"{value}"' if isinstance(value, str) else repr(value))[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def printable(text: str) -> str:
    """Escape what a terminal would not print but obey."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def parse_size(value: object) -> int:
    """Turn ``512``, ``"512MB"`` (10^6) or ``"4GiB"`` (2^30) into bytes; raise ConfigError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number, unit = match[1], match[2].lower()
        if unit in _SIZE_UNITS:
            return round(fractions.Fraction(number) * _SIZE_UNITS[unit])
        if unit in _PREFIXES:
            meant = f"{number}{match[2].upper()}"
            raise ConfigError(f'{shown(value)} could mean two sizes: write "{meant}B" (10^) or "{meant}iB" (2^)')
    raise ConfigError(f"{shown(value)} is not a size: expected {_SIZE_EXPECTED}")


def parse_duration_ns(value: object) -> int:
    """Turn seconds (``2``, ``0.5``) or ``"500ms"``, ``"5m"``, ``"1h30m"`` into nanoseconds; else raise ConfigError."""
    ns = _duration_ns(value)
    if ns > LONGEST_S * NS_PER_S:
        raise ConfigError(f"{shown(value)} is too long for a duration: expected at most ten years")
    return ns


def _duration_ns(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value) * NS_PER_S
    if isinstance(value, float) and math.isfinite(value) and value >= 0:
        if value.is_integer():
            return int(value) * NS_PER_S
        written = fractions.Fraction(repr(value))  # the decimal, not its binary neighbour
        return round(written * NS_PER_S)
    if isinstance(value, str):
        total, position, text = fractions.Fraction(0), 0, value.strip()
        while match := _DURATION_PART.match(text, position):
            total += fractions.Fraction(match[1]) * _DURATION_UNITS[match[2]]
            position = match.end()
        if text and position == len(text):
            return round(total)
    raise ConfigError(f"{shown(value)} is not a duration: expected {_DURATION_EXPECTED}")


def in_ms(ns: int) -> float:
    """Return nanoseconds as milliseconds, an int where it is whole."""
    whole, rest = divmod(ns, NS_PER_MS)
    return ns / NS_PER_MS if rest else whole


def format_ms(ms: float) -> str:
    """Give a duration as people say it: ``850 ms``, ``12.3 s``, ``4m 05s``, ``2h 03m``, ``3d 04h``."""
    if ms < _ROUNDS_TO_1_S:
        return f"{ms:.3g} ms" if ms < _HUNDRED else f"{round(ms)} ms"
    if ms < _ROUNDS_TO_60_S:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    _, unit, size, smaller, part = next(row for row in _CLOCK if seconds < row[0])
    return f"{seconds // size}{unit} {seconds % size // part:02d}{smaller}"


def format_size(size: float) -> str:
    """Give bytes as people say them, in powers of ten: ``512 B``, ``1.5 GB``."""
    if size < _THOUSAND:
        return f"{size:.3g} B"
    for prefix in "kMGTPE":
        size /= 1000
        if size < _THOUSAND or prefix == "E":
            break
    return f"{size:.1f} {prefix}B"
