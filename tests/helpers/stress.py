"""Many threads at one authority: they submit, pause, cancel and dispose at random, with hardly a pause in between."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import Any

import whywait
from whywait import Authority, Retry, WhywaitError
from whywait.kernel import invariants
from whywait.runtime.authority import core_of

WAIT_S = 60.0
KEYS = ("p", "q", "r")


@contextmanager
def hasty_switches(interval_s: float = 1e-6):
    """Let the interpreter switch threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def quick(value: int) -> int:
    return value


def failing(value: int) -> int:
    raise ValueError(value)


def looking(value: int) -> int:
    """Pass some checkpoints."""
    for _ in range(3):
        whywait.current().checkpoint()
        time.sleep(0)
    return value


async def coroutine(value: int) -> int:
    await asyncio.sleep(0)
    return value


BODIES = (quick, quick, quick, failing, looking, coroutine)


class Storm:
    """One authority and everything that is done to it."""

    def __init__(self, seed: int, threads: int, seconds: float, operations: int) -> None:
        self.seed = seed
        self.threads = threads
        self.until = time.monotonic() + seconds
        self.operations = operations  # for each thread, at most
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.handles: list[list[Any]] = []
        self.watched: list[Any] = []  # handles with a callback
        self.called: list[Any] = []  # by their callbacks

    def run(self) -> dict[str, Any]:
        """Return what was done; raise if anything is not as it must be."""
        with hasty_switches():
            authority = Authority(slots=3, cpu=4, queue_limit=2000, events=100, pause_timeout=0.5, grace=WAIT_S)
            players = [threading.Thread(target=self._play, args=(authority, index)) for index in range(self.threads)]
            for player in players:
                player.start()
            for player in players:
                player.join(WAIT_S + max(0.0, self.until - time.monotonic()))
                assert not player.is_alive(), f"seed {self.seed}: a thread hangs"
            assert self.problems == [], f"seed {self.seed}: {self.problems[0]}"
            self._check(authority)
            authority.dispose()
        return {"seed": self.seed, "threads": self.threads, **self.counts}

    def _play(self, authority: Authority, index: int) -> None:
        dice = random.Random(f"{self.seed}-{index}")
        mine: list[Any] = []
        self.handles.append(mine)
        try:
            for _ in range(self.operations):
                if time.monotonic() > self.until:
                    break
                self._act(authority, dice, mine)
                if dice.random() < 0.05:
                    time.sleep(dice.random() * 0.001)
        except BaseException:  # noqa: BLE001 - whatever it is, it is a finding
            self.problems.append(traceback.format_exc())

    def _act(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        verb = dice.choices(
            ("submit", "cancel", "pause", "resume", "why", "result", "scope", "dispose", "suspend", "snapshot", "many"),
            (50, 8, 3, 4, 4, 6, 2, 1, 1, 1, 2),
        )[0]
        try:
            act = self._on_some(verb) if verb in {"cancel", "pause", "resume", "why"} else getattr(self, f"_{verb}")
            act(authority, dice, mine)
            self.counts[verb] += 1
        except (WhywaitError, ValueError) as error:  # refused, or what a body raised
            self.counts[type(error).__name__] += 1

    def _submit(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        options: dict[str, Any] = {"priority": dice.choice((0, 20, 50, 80, 100))} if dice.random() < 0.5 else {}
        if dice.random() < 0.2:
            options |= {"cpu": dice.randint(1, 4), "max_wait": dice.choice((0.001, 30)), "timeout": 30}
        if dice.random() < 0.1:
            options["retry"] = Retry(2, backoff=0.0005)
        if mine and dice.random() < 0.2:
            options["after"] = [dice.choice(mine[-10:])]
        scope = authority
        if dice.random() < 0.5:
            scope = authority.get_scope(dice.choice(KEYS))
        handle = scope.submit(dice.choice(BODIES), len(mine), **options)
        handle.add_done_callback(self.called.append)
        self.watched.append(handle)
        mine.append(handle)

    def _many(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        mine += authority.submit_many([whywait.Call(quick, (number,)) for number in range(dice.randint(2, 9))])

    def _on_some(self, verb: str) -> Callable[..., None]:
        """Return a command that is given to one of the latest handles."""

        def act(authority: Authority, dice: random.Random, mine: list[Any]) -> None:
            if mine:
                getattr(dice.choice(mine[-20:]), verb)()

        return act

    def _result(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        if mine:
            with suppress(TimeoutError):  # it may be paused, or its scope suspended
                dice.choice(mine[-20:]).exception(0.005)

    def _scope(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        parent: Any = authority
        with suppress(WhywaitError):  # there is none of that key
            parent = authority.get_scope(dice.choice(KEYS))
        parent.scope(dice.choice(KEYS), slots=dice.choice((1, 2, None)))

    def _dispose(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        authority.get_scope(dice.choice(KEYS)).dispose()

    def _suspend(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        scope = authority.get_scope(dice.choice(KEYS))
        scope.suspend()
        time.sleep(dice.random() * 0.002)
        scope.resume()

    def _snapshot(self, authority: Authority, dice: random.Random, mine: list[Any]) -> None:
        authority.snapshot()
        authority.stats()

    def _check(self, authority: Authority) -> None:
        """Let everything end that still can; then nothing may be left, and each callback has been called once."""
        handles = [handle for mine in self.handles for handle in mine]
        for key in KEYS:
            with suppress(WhywaitError):
                authority.get_scope(key).resume()
        for handle in handles:
            with suppress(WhywaitError):
                handle.resume()
        for handle in handles:
            handle.exception(WAIT_S)
        assert authority.submit(quick, 7).result(WAIT_S) == 7, f"seed {self.seed}"
        end = time.monotonic() + WAIT_S
        while len(self.called) < len(self.watched) or authority.stats()["active"]:
            assert time.monotonic() < end, f"seed {self.seed}: {authority.stats()}"
            time.sleep(0.001)
        stats = authority.stats()
        assert stats["queued"] == 0, f"seed {self.seed}: {stats}"
        assert Counter(map(id, self.called)) == Counter(map(id, self.watched)), f"seed {self.seed}: callbacks"
        assert stats["submitted"] == stats["completed"], f"seed {self.seed}: {stats}"
        for handle in handles:
            assert handle.outcome is not None
            assert handle.outcome != "success" or handle.exception() is None
        core = core_of(authority)
        with core.lock:
            invariants.check(core.kernel, time.monotonic_ns(), rested=False)
        self.counts["tasks"] = len(handles)
