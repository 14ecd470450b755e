"""S7: with ``when_blocked="lend"`` a task gives its slot back while it waits for the ends of others."""

import asyncio
import random
import threading
import time

import pytest

import whywait
from patience import PATIENCE_S, until
from whywait import Authority, Executor, Outcome
from whywait.observe.record import Record

DEEP = 50


def nest(authority, depth):
    return 0 if depth == 0 else 1 + authority.submit(nest, authority, depth - 1).result(PATIENCE_S)


async def nest_async(authority, depth):
    return 0 if depth == 0 else 1 + await authority.submit(nest_async, authority, depth - 1)


@pytest.mark.parametrize("body", [nest, nest_async])
def test_tasks_that_wait_for_each_other_run_on_one_slot(body):
    """S7: fifty deep; each goes on when the one inside has ended, and none holds a slot that it lends."""
    with Authority(slots=1, when_blocked="lend") as authority:
        assert authority.submit(body, authority, DEEP).result(PATIENCE_S) == DEEP
        kinds = [event.kind for event in authority.events()]
        assert kinds.count("TASK_BLOCKED") == kinds.count("TASK_REGAINED") == DEEP
        assert authority.snapshot().slots.free == 1


def in_every_way(authority):
    made = [authority.submit(int, text) for text in "123"]
    yield sum(whywait.gather(*made))
    made = [authority.submit(int, text) for text in "123"]
    yield sum(handle.result() for handle in whywait.wait(made).done)
    yield sum(handle.result() for handle in whywait.as_completed([authority.submit(int, text) for text in "123"]))
    with authority.scope("inside") as scope:
        first = scope.submit(int, "3")
        scope.wait()
        assert first.done()
        last = scope.submit(int, "3")
    yield first.result() + last.result()
    yield 6 if authority.submit(int, "6").exception() is None else 0


async def in_every_way_async(authority):
    answers = [sum(await whywait.gather_async(*[authority.submit(int, text) for text in "123"]))]
    answers.append(sum(await asyncio.gather(*[authority.submit(int, text) for text in "123"])))
    waited = await whywait.wait_async([authority.submit(int, text) for text in "123"])
    answers.append(sum(handle.result() for handle in waited.done))
    made = [authority.submit(int, text) for text in "123"]
    answers.append(sum([handle.result() async for handle in whywait.as_completed(made)]))
    async with authority.scope("inside") as scope:
        first = scope.submit(int, "3")
        await scope.wait_async()
        assert first.done()
        last = scope.submit(int, "3")
    return [*answers, first.result() + last.result()]


def test_every_way_to_wait_lends():
    """S7: `wait`, `gather`, `as_completed`, `scope.wait()`, leaving a block, `exception()`."""
    with Authority(slots=1, when_blocked="lend") as authority:
        handle = authority.submit(lambda: list(in_every_way(authority)))
        assert handle.result(PATIENCE_S) == [6] * 5


def test_every_way_to_await_lends():
    """S7: the same on an event loop."""
    with Authority(slots=1, when_blocked="lend") as authority:
        assert authority.submit(in_every_way_async, authority).result(PATIENCE_S) == [6] * 5


def test_a_futures_wait_lends():
    """S7: the deadlock that thread pools are known for does not come."""
    with Executor(max_workers=1, when_blocked="lend") as executor:
        assert executor.submit(lambda: executor.submit(int, "7").result(PATIENCE_S)).result(PATIENCE_S) == 7


def test_a_scope_says_for_itself_whether_its_tasks_lend():
    """S7: a scope inherits the setting, or has its own."""
    with Authority(slots=1, when_blocked="lend") as authority:
        below = authority.scope("lends").scope("inherits")
        assert below.submit(nest, below, 3).result(PATIENCE_S) == 3
        holds = authority.scope("holds", when_blocked="hold")
        handle = holds.submit(lambda: authority.submit(int, "7", id="inner").exception("50ms"))
        with pytest.raises(TimeoutError):
            handle.result(PATIENCE_S)


class Crowd:
    """Counts bodies that run, not those that wait."""

    def __init__(self):
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def change(self, by):
        with self.lock:
            self.now += by
            self.most = max(self.most, self.now)


def storm(authority, crowd, dice, depth):
    crowd.change(1)
    time.sleep(dice.random() / 1000)
    inner = range(dice.randint(0, 3) if depth else 0)
    made = [authority.submit(storm, authority, crowd, dice, depth - 1) for _ in inner]
    for handle in made:
        if not handle.done():
            crowd.change(-1)
            handle.result(PATIENCE_S)
            crowd.change(1)
    crowd.change(-1)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_no_more_bodies_run_than_there_are_slots(slots):
    """S7, S1: however many lend, those that run are never more than the slots."""
    dice, crowd = random.Random(slots), Crowd()
    with Authority(slots=slots, when_blocked="lend") as authority:
        for handle in [authority.submit(storm, authority, crowd, dice, 3) for _ in range(10)]:
            handle.result(PATIENCE_S)
        assert crowd.most <= slots
        assert authority.snapshot().slots.free == slots


@pytest.fixture
def stage():
    """One slot: `outer` has lent it, its wait is over, and `other` holds the slot until it is let go."""
    with Authority(slots=1, when_blocked="lend", grace=PATIENCE_S) as authority:
        go, begun, went_on = threading.Event(), threading.Event(), threading.Event()
        made = []

        def other():
            begun.set()
            go.wait(PATIENCE_S)

        def outer():
            made.append(authority.submit(other, id="other"))
            with pytest.raises(TimeoutError):
                made[0].result("100ms")
            went_on.set()
            return 7

        handle = authority.submit(outer, id="outer")
        assert begun.wait(PATIENCE_S)
        assert handle.why().lends
        until(lambda: handle.why().wants_slot)
        yield authority, handle, go, went_on
        go.set()


def test_a_task_waits_for_its_slot_before_any_other_starts(stage):
    """S7: the next free slot is its own, whatever is READY, and until then why() names the holders."""
    authority, handle, go, went_on = stage
    urgent = authority.submit(int, id="urgent", priority="critical")
    text = str(handle.why())
    assert "waits for a slot to go on after it blocked, and holds nothing" in text
    assert "slots: the only one is taken, by other" in text
    assert handle.why().to_dict()["wants_slot"]
    assert not went_on.wait(0.05)
    go.set()
    assert handle.result(PATIENCE_S) == 7
    assert urgent.result(PATIENCE_S) == 0
    order = [(event.kind, event.name) for event in authority.events()]
    assert order.index(("TASK_REGAINED", "outer")) < order.index(("TASK_STARTED", "urgent"))


def test_a_cancelled_await_goes_on_with_its_slot():
    """S7: a body that gives up waiting needs its slot too, and a cancellation of its own comes through."""
    with Authority(slots=1, when_blocked="lend") as authority:
        go, seen = threading.Event(), []

        async def outer():
            inner = authority.submit(go.wait, PATIENCE_S, id="inner")
            try:
                async with asyncio.timeout(0.05):
                    await inner
            except TimeoutError:
                seen.append(inner.done())
            return 7

        handle = authority.submit(outer, id="outer")
        until(lambda: handle.why().wants_slot)
        assert not seen
        go.set()
        assert handle.result(PATIENCE_S) == 7
        assert seen == [True]


def test_disposal_ends_tasks_that_lend():
    """S7, O5: those that wait for others, and those that wait for their slots."""
    with Authority(slots=1, when_blocked="lend", grace=PATIENCE_S) as authority:
        scope = authority.scope("doomed")
        handle = scope.submit(nest, scope, 1)
        handle.result(PATIENCE_S)

        async def for_ever():
            await asyncio.Event().wait()

        async def outer():
            await scope.submit(for_ever)

        lends = scope.submit(outer)
        until(lambda: lends.why().lends)
        scope.dispose()
        assert lends.outcome is Outcome.ABORTED
        assert authority.submit(int, "7").result(PATIENCE_S) == 7


def test_lending_is_recorded_and_comes_out_the_same(tmp_path):
    """S7, V3: a record with lent slots gives the same events again."""
    path = tmp_path / "run.record"
    with Authority(slots=1, when_blocked="lend", record=path) as authority:
        authority.submit(nest, authority, 5).result(PATIENCE_S)
        told = [(event.kind, event.number, event.details) for event in authority.events()]
    again = [(event.kind, event.number, event.details) for event in Record(path).replay()]
    assert again[: len(told)] == told


def test_the_one_thread_of_the_simple_engine_holds():
    """S7: another task could not run there meanwhile, so both say that neither can go on."""
    assert Authority(engine="simple", when_blocked="lend").settings.when_blocked == "hold"
