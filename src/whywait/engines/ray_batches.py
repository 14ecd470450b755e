"""Which tasks go to Ray together: a task of Ray costs half a millisecond and more, and many bodies take far less.

Tasks of one function and one demand that are all permitted may be sent as one task of Ray; their bodies run one after
the other, in the order in which they were permitted, and each has its own outcome. A function qualifies by itself when
nearly all of its latest bodies were over in no time (now and then a busy machine holds up even the shortest), or when
the user says so. A body that takes its time after all does not hold up those behind it: the worker hands them back, see
:mod:`whywait.engines.ray_child`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from whywait.handle import Handle

TINY_US: Final = 2000  # a body that takes longer gains little
PROVEN: Final = 4  # so many more tiny bodies than long ones, each of which counts as many as
LONG_COUNTS: Final = 4
CREDIT: Final = 12  # at most: who has been tiny for ever and is no more is found out soon
TARGET_US: Final = 10_000  # of work in one batch
AT_MOST: Final = 256
SPREAD: Final = 16  # CPUs; to send a batch to one more costs more than it saves
LOOK_AHEAD: Final = 2048  # pending tasks that are looked at for one batch
DEPTH: Final = 2  # batches with Ray for each CPU; the rest waits here and makes the next batches larger,
PATIENCE_S: Final = 0.05  # but not for batches that do not come back: Ray may have no place for them
_KEPT_AT_MOST: Final = 512
_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType)  # other callables may not even be hashable


class Batches:
    """Watches how long functions take, and takes from a queue what may go together."""

    def __init__(self, allowed: bool | None) -> None:  # noqa: FBT001 - yes, no, or as it turns out
        self._allowed = allowed
        self.under_way = 0  # tasks of Ray that may be batches
        self._spread = 1  # over so many CPUs batches are spread
        self._waits_since_s: float | None = None  # somebody waits for company, and no batch has come back
        self._pace: dict[Callable[..., Any], tuple[int, float]] = {}  # credit, mean of the tiny bodies in us

    def took(self, fn: Callable[..., Any], duration_us: int | None) -> None:
        """Take note of how long a body took; None: long enough to have something to say."""
        if self._allowed is False or fn.__class__ not in _FUNCTIONS:
            return
        if len(self._pace) >= _KEPT_AT_MOST:
            self._pace.clear()
        credit, mean_us = self._pace.get(fn, (0, 0.0))
        if duration_us is None or duration_us > TINY_US:
            self._pace[fn] = (max(0, credit - LONG_COUNTS), mean_us)
        else:
            self._pace[fn] = (min(CREDIT, credit + 1), mean_us + (duration_us - mean_us) / (credit + 1))

    def failed(self, fn: Callable[..., Any]) -> None:
        """Take note that a body has failed: it goes alone until it has proven itself again."""
        if fn.__class__ in _FUNCTIONS:
            self._pace.pop(fn, None)

    def may_share(self, handle: Handle[Any]) -> bool:
        """Return whether a task may go together with others of its function."""
        policy = handle._task.policy
        if (
            self._allowed is False
            or handle.attention
            or policy.timeout_ns is not None
            or policy.max_wait_ns is not None
        ):
            return False
        return self._allowed is True or self._pace_of(handle._fn)[0] >= PROVEN

    def _pace_of(self, fn: Callable[..., Any]) -> tuple[int, float]:
        return self._pace.get(fn, (0, 0.0)) if fn.__class__ in _FUNCTIONS else (0, 0.0)

    def size_of(self, fn: Callable[..., Any]) -> int:
        """Return how many bodies of a function a batch may have."""
        mean_us = self._pace_of(fn)[1] or TARGET_US / 16
        return min(AT_MOST, max(1, int(TARGET_US / mean_us)))

    def spread_over(self, cpus: int) -> None:
        """Take note of how many CPUs there are."""
        self._spread = min(SPREAD, cpus) or 1

    def came_back(self) -> None:
        """Take note that Ray gets on."""
        self._waits_since_s = None

    def waits(self, handle: Handle[Any]) -> bool:
        """Return whether a task had better wait until one of the batches comes back, and then go in company."""
        if self.under_way < DEPTH * self._spread or not self.may_share(handle):
            return False
        if self._waits_since_s is None:
            self._waits_since_s = monotonic()
        return monotonic() - self._waits_since_s <= PATIENCE_S

    def take(self, inbox: deque[Handle[Any]]) -> list[Handle[Any]]:
        """Take the first task, and those behind it that may go with it; IndexError if there is none."""
        first = inbox.popleft()
        handles = [first]
        if not self.may_share(first):
            return handles
        size = min(self.size_of(first._fn), -(-(len(inbox) + 1) // self._spread))
        fn, demand = first._fn, first._task.demand
        while inbox and len(handles) < size:
            following = inbox.popleft()
            if following._fn is not fn or following._task.demand != demand or not self.may_share(following):
                inbox.appendleft(following)  # order is kept: whoever is behind it waits, too
                break
            handles.append(following)
        return handles

    def look_ahead(self, most: int) -> int:
        """Return how many pending tasks to look at if so many may go along with a batch."""
        return min(LOOK_AHEAD, 2 * most * self._spread)

    def take_ahead(self, handle: Handle[Any], most: int, following: list[Handle[Any]]) -> list[Handle[Any]]:
        """Return who of those that follow a task in its lane may go along with it: its share of them, in order."""
        fn, engine = handle._fn, handle._engine
        found = []
        for each in following:
            if each._engine is not engine or each._fn is not fn or not self.may_share(each):
                break
            found.append(each)
        return found[: min(most, -(-len(found) // self._spread))]
