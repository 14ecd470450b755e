"""The order among READY tasks: by base priority alone, or lifted by waiting.

An order is a pure function of a base priority and a waiting time. In every order waiting longer never hurts, so that
the task that entered a priority level first is the best of its level (:mod:`whywait.kernel.levels` rests on that).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from whywait.errors import ConfigError
from whywait.kernel.durations import NS, Seconds, in_seconds
from whywait.kernel.limits import one_of

Ties = Literal["submission", "id"]


@dataclass(frozen=True, slots=True)
class Strict:
    """Order by base priority alone; starvation is visible and intended.

    ``ties``: tasks that one completion wakes become READY in order of submission, or with ``"id"`` in order of id.
    """

    ties: Ties = "submission"

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        one_of("ties", self.ties, Ties)

    def effective(self, base: int, waited_ns: int) -> int:  # noqa: ARG002 - the signature of an order
        """Return the base priority."""
        return base

    def promotions(self, base: int, waited_ns: int) -> int:  # noqa: ARG002 - the signature of an order
        """Return 0: nothing is ever lifted."""
        return 0

    def next_step(self, base: int, waited_ns: int) -> int | None:  # noqa: ARG002 - the signature of an order
        """Return None: nothing is ever lifted."""
        return None

    def waited_for(self, base: int, effective: int) -> int | None:
        """Return the waiting time after which the priority is at least ``effective``, or None if it never is."""
        return 0 if base >= effective else None


@dataclass(frozen=True, slots=True)
class Aging:
    """Order by base priority plus ``boost`` for every ``every`` seconds waited, lifted up to ``cap`` at most.

    ``ties``: tasks that one completion wakes become READY in order of submission, or with ``"id"`` in order of id.
    """

    every: Seconds = 5.0  # kept as seconds, however it was written
    boost: int = 10
    cap: int | None = 99
    ties: Ties = "submission"
    every_ns: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        object.__setattr__(self, "every", in_seconds("aging every", self.every))
        if not self.every:
            raise ConfigError("aging every=0 is not allowed: use a duration above 0")
        if isinstance(self.boost, bool) or not isinstance(self.boost, int) or self.boost < 0:
            raise ConfigError(f"aging boost={self.boost!r} is not allowed: use an int of 0 or more")
        if self.cap is not None and (isinstance(self.cap, bool) or not isinstance(self.cap, int)):
            raise ConfigError(f"aging cap={self.cap!r} is not allowed: use an int or None")
        one_of("ties", self.ties, Ties)
        object.__setattr__(self, "every_ns", max(1, round(float(self.every) * NS)))

    def effective(self, base: int, waited_ns: int) -> int:
        """Return the priority after so much waiting: never above ``cap`` by the gain, never below ``base``."""
        lifted = base + waited_ns // self.every_ns * self.boost
        if self.cap is not None and lifted > self.cap:
            return max(self.cap, base)
        return lifted

    def promotions(self, base: int, waited_ns: int) -> int:
        """Return how many steps have lifted a task that waited so long."""
        steps = waited_ns // self.every_ns
        if self.boost == 0:
            return 0
        if self.cap is None:
            return steps
        return min(steps, max(0, -(-(self.cap - base) // self.boost)))

    def next_step(self, base: int, waited_ns: int) -> int | None:
        """Return the waiting time at which the next step lifts the task, or None if none will."""
        steps, boost, cap = waited_ns // self.every_ns, self.boost, self.cap
        lifts = boost and (cap is None or base + steps * boost < cap)
        return (steps + 1) * self.every_ns if lifts else None

    def waited_for(self, base: int, effective: int) -> int | None:
        """Return the waiting time after which the priority is at least ``effective``, or None if it never is."""
        if base >= effective:
            return 0
        if self.boost == 0 or (self.cap is not None and effective > self.cap):
            return None
        return -(-(effective - base) // self.boost) * self.every_ns


Order = Strict | Aging
