"""Lazy resources of scopes: made once, by a running task; closed after the last body."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, ConfigError, DisposeIncomplete, current
from whywait.engines.thread import ThreadEngine


class Maker:
    """Makes one resource after the other and notes by which task, and what was closed."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails
        self.made: list[str] = []
        self.closed: list[object] = []

    def __call__(self) -> str:
        self.made.append(current().ref.scope)
        if len(self.made) <= self.fails:
            raise OSError("no such device")
        return f"resource {len(self.made)}"

    def close(self, value: object) -> None:
        self.closed.append(value)


def same(value):
    return value


@pytest.mark.parametrize("engine", ["thread", "simple", "asyncio"])
def test_it_is_made_once_by_a_running_task_and_closed_with_its_scope(engine):
    """O9: nothing is made before a task runs; all get the same value; closed when the scope is disposed."""
    maker = Maker()
    with Authority(slots=4, engine=engine) as authority:
        with authority.scope("s") as scope:
            lazy = scope.lazy(maker, maker.close)
            assert (lazy.is_made, maker.made) == (False, [])
            handles = [scope.submit(same, lazy) for _ in range(8)]
            handles.append(scope.submit(same, kwargs={"value": lazy}))
            assert {handle.result(PATIENCE_S) for handle in handles} == {"resource 1"}
            assert (lazy.is_made, maker.made, maker.closed) == (True, ["s"], [])
        assert maker.closed == ["resource 1"]
        assert not lazy.is_made


@dataclass(frozen=True)
class Tools:
    """Something that has a resource."""

    model: object


def make_text():
    return "made"


def look_into(first, tools, *, others):
    return first["model"][0], tools.model, others[1]


@pytest.mark.parametrize("engine", ["thread", "simple", "asyncio", "process"])
def test_it_is_found_in_containers_as_handles_are(engine):
    """O9, G4: in a dict, a list and a dataclass, beside a handle; the body gets the value, and nobody a lazy."""
    with Authority(slots=2, engine=engine) as authority, authority.scope("s") as scope:
        lazy = scope.lazy(make_text)
        text = scope.submit(make_text)
        several = {"model": [lazy, text]}
        handle = scope.submit(look_into, several, Tools(lazy), kwargs={"others": (text, lazy)})
        assert handle.result(PATIENCE_S) == ("made", "made", "made")
        assert several == {"model": [lazy, text]}
        with pytest.raises(ConfigError, match="is not for a task of scope 'default'"):
            authority.submit(same, [lazy])


def test_coroutines_and_threads_share_it_and_the_loop_goes_on_while_it_is_made():
    """O9: making it takes a thread, not the loop."""
    go, ticks = threading.Event(), []

    def make():
        assert go.wait(PATIENCE_S)
        return "model"

    async def use(model):
        return model

    async def main():
        async with Authority(slots=4) as authority, authority.scope("s") as scope:
            lazy = scope.lazy(make)
            first, second = scope.submit(use, lazy), scope.submit(same, lazy)
            for tick in range(3):
                await asyncio.sleep(0.001)
                ticks.append(tick)
            go.set()
            return await first, await second

    assert asyncio.run(main()) == ("model", "model")
    assert ticks == [0, 1, 2]


def test_it_is_made_in_the_slot_and_budget_of_the_task():
    """O9: while it is made, the task holds both."""
    seen = []
    with Authority(slots=1, cpu=2) as authority, authority.scope("s") as scope:
        lazy = scope.lazy(lambda: seen.append(current().snapshot()) or "made")
        assert scope.submit(same, lazy, cpu=2, id="first").result(PATIENCE_S) == "made"
    (picture,) = seen
    assert [task.id for task in picture.running] == ["first"]
    assert [gate.free for gate in picture.budget if gate.name == "cpu"] == [0]


def test_a_failing_make_fails_the_task_that_asked_and_the_next_tries_again():
    """O9: also a retry of the same task is a next one."""
    maker = Maker(fails=2)
    with Authority(slots=1) as authority, authority.scope("s") as scope:
        lazy = scope.lazy(maker, maker.close)
        first = scope.submit(same, lazy)
        with pytest.raises(OSError, match="no such device"):
            first.result(PATIENCE_S)
        assert not lazy.is_made
        assert scope.submit(same, lazy, retry=1).result(PATIENCE_S) == "resource 3"
    assert maker.closed == ["resource 3"]


def test_it_is_closed_after_the_last_body_the_last_one_made_first():
    """O9: dispose waits for bodies, then closes; a scope inside closes what it owns before."""
    order, started = [], threading.Event()

    def body(_outer, _inner):
        started.set()
        current().signal.wait(PATIENCE_S)
        order.append("body")

    with Authority(slots=1) as authority:
        outer = authority.scope("outer")
        inner = outer.scope("inner")
        lazies = [outer.lazy(lambda: "o", order.append), inner.lazy(lambda: "i", order.append)]
        inner.submit(body, *lazies)
        assert started.wait(PATIENCE_S)
        outer.dispose()
        assert order == ["body", "i", "o"]


def test_a_body_that_does_not_end_keeps_it_open():
    """O9, O5: dispose raises; when the body has ended at last, the resource is closed."""
    go, started, closed = threading.Event(), threading.Event(), []

    def stubborn(_):
        started.set()
        go.wait(PATIENCE_S)

    with Authority(slots=1, grace=0.01) as authority:
        scope = authority.scope("s")
        scope.submit(stubborn, scope.lazy(lambda: "r", closed.append))
        assert started.wait(PATIENCE_S)
        with pytest.raises(DisposeIncomplete):
            scope.dispose()
        assert closed == []
        go.set()
        until(lambda: closed == ["r"], "the end of the resource")


def test_an_error_while_closing_is_logged_and_the_others_are_closed(caplog):
    """O9: dispose goes on."""
    closed = []

    def bad(_):
        raise RuntimeError("stuck")

    with Authority(slots=1) as authority, caplog.at_level(logging.ERROR, "whywait"):
        with authority.scope("s") as scope:
            scope.submit(max, scope.lazy(lambda: 1, closed.append), scope.lazy(lambda: 2, bad))
        assert closed == [1]
    assert "closing" in caplog.text
    assert "stuck" in caplog.text


def test_periodics_get_it_too():
    """O9, R3: each iteration the same value."""
    maker, seen = Maker(), []
    with Authority() as authority, authority.scope("s") as scope:
        scope.periodic(seen.append, scope.lazy(maker, maker.close), every="2ms")
        until(lambda: len(seen) >= 3)
    assert set(seen) == {"resource 1"}
    assert maker.closed == ["resource 1"]


@pytest.mark.parametrize(
    ("make", "close", "text"),
    [
        (None, None, "lazy make None is not allowed: use a plain function"),
        (3, None, "lazy make 3 is not allowed"),
        (asyncio.sleep, None, "lazy make .*sleep.* is not allowed: use a plain function"),
        (int, 3, "lazy close 3 is not allowed"),
    ],
)
def test_what_cannot_make_or_close_is_refused(make, close, text):
    """O9: at once, with the value."""
    with Authority() as authority, authority.scope("s") as scope, pytest.raises(ConfigError, match=text):
        scope.lazy(make, close)


def test_tasks_that_could_outlive_it_or_run_elsewhere_are_refused():
    """O9: another scope, or an engine whose bodies run elsewhere; nothing is left behind."""

    class Elsewhere(ThreadEngine):
        name = "elsewhere"
        shares_memory = False

    with Authority(slots=1) as authority, authority.scope("s") as scope, authority.scope("t") as other:
        lazy = scope.lazy(int)
        with pytest.raises(ConfigError, match="is not for a task of scope 't': hand it to tasks of its own scope"):
            other.submit(same, lazy)
        with pytest.raises(ConfigError, match="is not for engine 'elsewhere', whose bodies run elsewhere"):
            scope.submit(same, lazy, engine=Elsewhere())
        assert authority.stats()["submitted"] == 0
        assert scope.scope("inside").submit(same, lazy).result(PATIENCE_S) == 0
