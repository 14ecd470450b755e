"""The measured figures, by what was measured: medians over the rounds, with their spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from contestants import OURS

LEVEL: Final = 1.05  # within this of the best is level
NEARLY: Final = 1.15  # within this, if each median lies in the other's spread
HALF: Final = 0.5


@dataclass(frozen=True)
class Stat:
    """A median over rounds, and the lowest and highest."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Stat | None:
        """Return the statistics of some values, None of none."""
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1], len(found)) if found else None

    def __str__(self) -> str:
        """Show the median, and the spread in brackets."""
        if self.rounds == 1:
            return short(self.median)
        return f"{short(self.median)} ({short(self.low)}..{short(self.high)})"


@dataclass(frozen=True)
class Verdict:
    """How whywait stands in a row where less is better."""

    ours: str
    peer: str
    ratio: float  # ours over theirs: less than 1 is better
    word: str  # first, level, lost


class Figures:
    """All figures of a run."""

    def __init__(self, results: dict[str, Any]) -> None:
        """Read what the runner wrote."""
        self.results = results
        self._cells = results["cells"]

    def contestants(self, work: str) -> list[str]:
        """Return who was to be measured at a kind of work, in the order of the plan."""
        return list(dict.fromkeys(cell["contestant"] for cell in self._cells if cell["work"] == work))

    def params(self, work: str, contestant: str) -> dict[str, Any]:
        """Return the parameters of the first cell of a contestant."""
        for cell in self._cells:
            if (cell["work"], cell["contestant"]) == (work, contestant):
                params: dict[str, Any] = cell["params"]
                return params
        return {}

    def rounds(self, work: str, contestant: str, tasks: int | None = None) -> list[dict[str, float]]:
        """Return the figures of each round; with ``tasks``, those of that size."""
        return [
            result["figures"]
            for cell in self._cells
            if (cell["work"], cell["contestant"]) == (work, contestant)
            and (tasks is None or cell["params"]["tasks"] == tasks)
            for result in cell["rounds"]
            if "figures" in result
        ]

    def error(self, work: str, contestant: str) -> str | None:
        """Return why there are no figures."""
        errors = [
            result["error"]
            for cell in self._cells
            if (cell["work"], cell["contestant"]) == (work, contestant)
            for result in cell["rounds"]
            if "error" in result
        ]
        return errors[0] if errors else None

    def stat(self, work: str, contestant: str, key: str, tasks: int | None = None) -> Stat | None:
        """Return a figure over all rounds."""
        return Stat.of(each[key] for each in self.rounds(work, contestant, tasks) if key in each)

    def keys(self, work: str, tasks: int | None = None) -> list[str]:
        """Return the names of all figures of a kind of work."""
        found: dict[str, None] = {}
        for contestant in self.contestants(work):
            for each in self.rounds(work, contestant, tasks):
                found.update(dict.fromkeys(each))
        return list(found)

    def sizes(self, work: str) -> list[int]:
        """Return the values of ``tasks`` that were measured."""
        return sorted({cell["params"]["tasks"] for cell in self._cells if cell["work"] == work})

    # Efficiency

    @property
    def reference(self) -> float:
        """The bytes in a second that bare threads do with the largest kernel: 100 %, for everybody."""
        rates = [
            rate
            for each in self.rounds("efficiency", "bare")
            for key, rate in each.items()
            if key.endswith(f"/{self.kernel_sizes[-1]}/rate")
        ]
        return statistics.median(rates) if rates else math.nan

    @property
    def kernel_sizes(self) -> list[int]:
        """The sizes of the kernel, smallest first."""
        sizes: list[int] = self.params("efficiency", "bare")["sizes"]
        return sizes

    def efficiency(self, contestant: str, pattern: str, size: int) -> Stat | None:
        """Return the share of the reference that a contestant reaches."""
        rounds = self.rounds("efficiency", contestant)
        return Stat.of(each[f"{pattern}/{size}/rate"] / self.reference for each in rounds)

    def metg(self, contestant: str, pattern: str) -> Stat | None:
        """Return the smallest granularity in µs at which half of the reference is reached: METG(50 %)."""
        return Stat.of(self._metg(each, pattern) for each in self.rounds("efficiency", contestant))

    def _metg(self, figures: dict[str, float], pattern: str) -> float:
        """Interpolate between the two sizes around one half; the smallest size if that is enough already."""
        last: tuple[float, float] | None = None
        for size in self.kernel_sizes:
            share = figures[f"{pattern}/{size}/rate"] / self.reference
            granularity = math.log(figures[f"{pattern}/{size}/granularity"])
            if share >= HALF:
                if last is None:
                    return math.exp(granularity)
                part = (HALF - last[0]) / (share - last[0])
                return math.exp(last[1] + part * (granularity - last[1]))
            last = share, granularity
        return math.inf


def verdict(stats: dict[str, Stat | None]) -> Verdict | None:
    """Return how the best of ours stands against the best of the others, where less is better."""
    found = {name: stat for name, stat in stats.items() if stat is not None and math.isfinite(stat.median)}
    ours = min((name for name in found if name in OURS), key=lambda name: found[name].median, default=None)
    peer = min((name for name in found if name not in OURS), key=lambda name: found[name].median, default=None)
    if ours is None or peer is None:
        return None
    mine, theirs = found[ours], found[peer]
    ratio = mine.median / theirs.median
    if ratio <= 1:
        word = "first"
    elif ratio <= LEVEL or (ratio <= NEARLY and mine.median <= theirs.high and theirs.median >= mine.low):
        word = "level"
    else:
        word = "lost"
    return Verdict(ours, peer, ratio, word)


def short(value: float) -> str:
    """Return a number with three digits that count."""
    if not math.isfinite(value):
        return "never"
    if abs(value) >= 100:  # noqa: PLR2004 - three digits
        return f"{value:,.0f}"
    return f"{value:.3g}"
