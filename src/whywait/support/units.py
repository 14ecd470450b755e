"""Sizes, from what people write to exact ints; sizes and durations as people read them."""

from __future__ import annotations

import math
import re
from typing import Final

from whywait.errors import ConfigError, printable, shown
from whywait.support.lazy import fractions

__all__ = [
    "LARGEST",
    "NS_PER_MS",
    "NS_PER_S",
    "bounded",
    "format_ms",
    "format_size",
    "in_ms",
    "parse_size",
    "parse_written_size",
    "printable",
    "shown",
]

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

_PREFIXES: Final = ("k", "m", "g", "t", "p", "e")
_SIZE_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate(_PREFIXES, 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate(_PREFIXES, 1)},
}
# Digits are bounded, so that a hostile string costs nothing to refuse.
_NUMBER: Final = r"[0-9]{1,30}(?:\.[0-9]{1,30})?"
_SIZE: Final = re.compile(rf"\s*({_NUMBER})\s*([a-z]{{0,3}})\s*", re.IGNORECASE)
_SIZE_EXPECTED: Final = 'an int >= 0 (bytes) or a string such as "512MB" (10^6) or "4GiB" (2^30)'
_ROUNDS_TO_1_S: Final = 999.5
_ROUNDS_TO_60_S: Final = 59_950
# Below so many seconds: the big unit and its size, the small unit and its size.
_CLOCK: Final[tuple[tuple[float, str, int, str, int], ...]] = (
    (3600, "m", 60, "s", 1),
    (86_400, "h", 3600, "m", 60),
    (math.inf, "d", 86_400, "h", 3600),
)
LARGEST: Final = 10**100  # what is worked out from such numbers still fits a float
_THOUSAND: Final = 1000
_HUNDRED: Final = 100


def parse_size(value: object) -> int:
    """Turn ``512``, ``"512MB"`` (10^6) or ``"4GiB"`` (2^30) into bytes; raise ConfigError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return bounded(value)
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number, unit = match[1], match[2].lower()
        if unit in _SIZE_UNITS:
            return round(fractions.Fraction(number) * _SIZE_UNITS[unit])
        if unit in _PREFIXES:
            meant, power = f"{number}{match[2].upper()}", _PREFIXES.index(unit) + 1
            ways = f'"{meant}B" (10^{3 * power}) or "{meant}iB" (2^{10 * power})'
            raise ConfigError(f"{shown(value)} could mean two sizes: write {ways}")
    raise ConfigError(f"{shown(value)} is not a size: expected {_SIZE_EXPECTED}")


def parse_written_size(value: object) -> int:
    """Turn a size on the command line or in a workflow file into bytes: a number other than 0 needs its unit (B6)."""
    size = parse_size(value)
    number = str(value).strip()
    if size and number[-1].isdecimal():
        number = shown(value) if isinstance(value, int) else number
        raise ConfigError(f"{number} what? write {number}GB, or {number}B for bytes")
    return size


def bounded(value: int) -> int:
    """Return an int that is no larger than anything can be; raise ConfigError for others."""
    if value > LARGEST:
        raise ConfigError(f"{shown(value)} is not allowed: expected at most 10^100")
    return int(value)


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
