"""Coroutines that are submitted and awaited on one event loop: no other thread takes part."""

import asyncio
import itertools
import threading

import pytest

import whywait
from patience import PATIENCE_S
from whywait import Authority, TaskAborted


async def nap(value):
    await asyncio.sleep(0)
    return value


async def one_by_one(authority):
    return [await authority.submit(nap, number) for number in range(50)]


async def at_once(authority):
    return await whywait.gather_async(*(authority.submit(nap, number) for number in range(50)))


async def with_asyncio(authority):
    handles = [authority.submit(nap, number) for number in range(50)]
    await asyncio.wait(handles)
    return await asyncio.gather(*handles)


async def as_they_end(authority):
    handles = [authority.submit(nap, number) for number in range(50)]
    return sorted([await handle async for handle in whywait.as_completed(handles)])


async def one_after_another(authority):
    first = authority.submit(nap, 0)
    handles = [first, *(authority.submit(nap, number, after=[first]) for number in range(1, 50))]
    return [await handle for handle in handles]


async def in_a_scope(authority):
    async with authority.scope("inner", slots=2) as scope:
        handles = [scope.submit(nap, number) for number in range(50)]
    return [await handle for handle in handles]


@pytest.mark.parametrize(
    "use", [one_by_one, at_once, with_asyncio, as_they_end, one_after_another, in_a_scope], ids=lambda use: use.__name__
)
def test_no_other_thread_is_started_or_woken(monkeypatch, use):
    """T4: nor is the loop itself woken as if from another thread."""
    started, woken = [], []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread.name), start(thread)))

    async def main():
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args, **kw: (woken.append(args), wake(*args, **kw)))
        async with Authority(slots=4) as authority:
            assert await use(authority) == list(range(50))
            assert (started, woken) == ([], [])

    asyncio.run(main())


def test_coroutines_that_never_wait_leave_the_loop_its_turns():
    """Thousands of them end one after the other, and another task of the loop goes on meanwhile."""
    turns, ended = [], []

    async def quick():
        ended.append(1)

    async def other():
        while len(ended) < 3_000:
            turns.append(len(ended))
            await asyncio.sleep(0)

    async def run():
        async with Authority(slots=1) as authority:
            gate, beside = asyncio.Event(), asyncio.create_task(other())
            authority.submit(gate.wait)  # until all the others wait for the slot
            for _ in range(3_000):
                authority.submit(quick)
            gate.set()
            await beside

    asyncio.run(run())
    assert len(ended) == 3_000
    assert sum(before < after for before, after in itertools.pairwise(turns)) >= 10


def test_a_coroutine_that_cancels_itself_before_it_has_waited_ends():
    """X3: its task is known from its first step on."""

    async def itself(box):
        box[0].cancel()
        await asyncio.sleep(PATIENCE_S)

    async def run():
        async with Authority(slots=1) as authority:
            gate, box = asyncio.Event(), []

            async def first():
                await gate.wait()

            authority.submit(first)
            box.append(authority.submit(itself, box))
            gate.set()
            with pytest.raises(TaskAborted):
                await box[0]

    asyncio.run(run())
