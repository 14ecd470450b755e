"""Event loops that come, stop, are cancelled and closed under one authority: each takes along what it has, no more."""

import asyncio
import gc
import logging
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import whywait
from patience import PATIENCE_S, until, until_async
from whywait import Authority, TaskAborted

LOST = ("aborted", "loop_closed")


@pytest.fixture
def authority():
    with Authority(slots=4, grace=0.2) as each:
        yield each


@pytest.fixture
def loop():
    """A loop of the test's own, to be run and closed by hand."""
    each = asyncio.new_event_loop()
    yield each
    each.close()


async def nap(value=None):
    await asyncio.sleep(0)
    return value


async def for_ever(entered=None, left=None):
    if entered is not None:
        entered.append(1)
    try:
        await asyncio.Event().wait()
    finally:
        if left is not None:
            left.append(1)


def end_of(handle):
    return handle.outcome, handle.cause


def holds_nothing(authority):
    """Whether all slots are free again."""
    return authority.stats()["active"] == 0


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_two_loops_with_twenty_awaited_tasks_each(slots):
    """T2, T4: whichever loop ends first, the other's tasks run to their ends, and no slot is lost."""
    with Authority(slots=slots) as authority:

        async def main(first):
            return [await authority.submit(nap, first + number) for number in range(20)]

        with ThreadPoolExecutor(2) as threads:
            results = list(threads.map(lambda first: asyncio.run(main(first)), (0, 100)))
        assert results == [list(range(20)), list(range(100, 120))]
        assert holds_nothing(authority)


def test_a_coroutine_runs_on_the_loop_that_it_was_submitted_from(authority):
    """T2: also while another loop has a task of the same authority; without a loop, on the authority's own."""

    async def where():
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    async def main():
        assert [await authority.submit(where) for _ in range(3)] == [asyncio.get_running_loop()] * 3
        return asyncio.get_running_loop()

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: asyncio.run(main()), range(2))
    own = [authority.submit(where).result(PATIENCE_S) for _ in range(2)]
    assert own[0] is own[1]
    assert own[0] not in {first, second}


def test_a_thread_without_a_loop_submits_to_the_loop_of_the_block():
    """T2: the loop on which `async with` was entered."""

    async def where():
        return asyncio.get_running_loop()

    async def main():
        async with Authority(slots=2) as authority:
            inner = await authority.submit(authority.submit, where)
            assert await inner is asyncio.get_running_loop()

    asyncio.run(main())


def test_a_handle_is_awaited_from_another_loop_than_its_task_has(authority):
    """T5: the result comes; so does the error when the loop of the task ends."""
    entered, handles = [], []

    async def owner():
        handles.extend([authority.submit(nap, 7), authority.submit(for_ever, entered)])
        await until_async(lambda: entered)
        await until_async(lambda: waiting)

    waiting = []

    async def other():
        await until_async(lambda: len(handles) == 2)
        assert await handles[0] == 7
        waiting.append(1)
        with pytest.raises(TaskAborted, match="loop_closed"):
            await asyncio.wait_for(handles[1], PATIENCE_S)

    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(asyncio.run, owner()), threads.submit(asyncio.run, other())]:
            each.result(PATIENCE_S)
    assert holds_nothing(authority)


def submit_in_all_states(authority, entered, left):
    """Submit tasks that are RUNNING, READY and QUEUED, dependents of another loop among them."""
    running = [authority.submit(for_ever, entered, left) for _ in range(4)]
    ready = [authority.submit(nap) for _ in range(20)]
    queued = [authority.submit(nap, after=[ready[0]]), authority.submit(nap, after_ended=[running[0]])]
    return running, ready, queued


@pytest.mark.parametrize("way", ["returns", "raises", "is cancelled", "is stopped by a body"])
def test_asyncio_run_takes_its_tasks_along(authority, way):
    """T2, G3: RUNNING, READY and QUEUED tasks end as `loop_closed`, dependents as `dependency`; none begins."""
    entered, left, begun, handles = [], [], [], []

    async def stop():
        asyncio.get_running_loop().stop()

    async def main():
        if way == "is stopped by a body":
            authority.submit(stop, slot=False)
        running, ready, queued = submit_in_all_states(authority, entered, left)
        handles.extend([*running, *ready, *queued])
        handles.append(authority.submit(begun.append, 1, after=[ready[0]]))  # on a thread
        await until_async(lambda: len(entered) == 4)
        if way == "raises":
            raise ValueError
        if way == "is cancelled":
            asyncio.current_task().cancel()
        if way != "returns":
            await asyncio.sleep(PATIENCE_S)

    with_errors = {"raises": ValueError, "is cancelled": asyncio.CancelledError, "is stopped by a body": RuntimeError}
    if way == "returns":
        asyncio.run(main())
    else:
        with pytest.raises(with_errors[way]):
            asyncio.run(main())
    until(lambda: all(handle.done() for handle in handles))
    assert len(left) == 4
    assert begun == []
    assert Counter(map(end_of, handles[:24])) == {LOST: 24}
    assert [end_of(handle) for handle in handles[24:]] == [("aborted", "dependency"), LOST, ("aborted", "dependency")]
    assert holds_nothing(authority)
    assert authority.submit(nap, 3).result(PATIENCE_S) == 3


def test_a_loop_that_is_closed_under_its_tasks(authority, loop, caplog):
    """T2, T4: never cancelled, only closed: the bodies' `finally` blocks run, then the slots come back."""
    entered, left = [], []

    async def main():
        states = submit_in_all_states(authority, entered, left)
        await until_async(lambda: len(entered) == 4)
        return states

    running, ready, queued = loop.run_until_complete(main())
    assert {handle.state for handle in running} == {"RUNNING"}  # a loop that stands may be run again
    assert {handle.state for handle in ready} == {"READY"}
    with caplog.at_level(logging.DEBUG):
        loop.close()
        gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(left) == 4
    assert {end_of(handle) for handle in (*running, *ready)} == {LOST}
    assert end_of(queued[0]) == ("aborted", "dependency")
    assert holds_nothing(authority)
    assert "event loop" in str(running[0].why())


def test_a_loop_that_was_stopped_goes_on(authority, loop):
    """T2: stopped by a body, it stands; run again, its tasks go on as if nothing had been."""

    async def stop():
        loop.stop()
        await asyncio.sleep(0)
        return 1

    async def submit():
        return [authority.submit(stop), *(authority.submit(nap, number) for number in range(20))]

    submitting = loop.create_task(submit())
    loop.run_forever()
    handles = submitting.result()
    assert handles[0].state == "RUNNING"
    assert loop.run_until_complete(whywait.gather_async(*handles)) == [1, *range(20)]


def test_a_body_that_stops_the_own_loop_of_the_authority_stops_nothing(authority):
    """T2: that loop is the authority's to end."""

    async def stop():
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.001)
        return 1

    handles = [authority.submit(each) for each in (nap, stop, nap) * 10]
    assert whywait.wait(handles, timeout=PATIENCE_S).pending == []
    assert {handle.outcome for handle in handles} == {"success"}


def test_a_body_on_a_loop_that_stands_is_killed(authority, loop):
    """O5: what no loop runs any more ends after `grace`, too."""
    entered, left = [], []

    async def main():
        scope = authority.scope("s")
        handle = scope.submit(for_ever, entered, left)
        await until_async(lambda: entered)
        return scope, handle

    scope, handle = loop.run_until_complete(main())
    scope.dispose()
    assert end_of(handle) == ("aborted", "scope_disposed")
    assert left == [1]


def test_what_is_cancelled_by_others_reports(authority):
    """T2: before its first step and after it; a loop that goes on takes no other task along."""

    async def main():
        first = authority.submit(for_ever)
        (begun,) = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.sleep(0.01)
        second = authority.submit(for_ever)
        third = authority.submit(nap, 3)
        behind = [authority.submit(nap, number) for number in range(8)]
        before_its_first_step = [*(asyncio.all_tasks() - {asyncio.current_task(), begun})]
        begun.cancel()
        for task in before_its_first_step:
            task.cancel()
        ended = await whywait.wait_async([first, second, third, *behind], timeout=PATIENCE_S)
        assert ended.pending == []
        assert Counter(map(end_of, ended.done)) == {("aborted", "cancelled"): 4, ("success", None): 7}

    asyncio.run(main())
    assert holds_nothing(authority)


def test_a_body_that_raises_a_cancellation_of_its_own_has_failed(authority):
    """T2: no task was cancelled, so that is an error as any other."""

    async def raises():
        raise asyncio.CancelledError

    handle = authority.submit(raises)
    assert isinstance(handle.exception(PATIENCE_S), asyncio.CancelledError)
    assert end_of(handle) == ("error", "exception")


@pytest.mark.parametrize("closed", [False, True])
def test_handlers_and_workers_end_with_the_loop(authority, loop, closed):
    """W1, W2, T2: the task ends when they have, as `loop_closed`."""
    entered, left = [], []

    def works():
        entered.append(1)
        whywait.current().signal.wait(PATIENCE_S)
        left.append(1)

    async def body():
        context = whywait.current()
        context.handler(for_ever, entered, left)
        context.handler(for_ever, entered, left)
        context.spawn(works)

    async def main():
        handle = authority.submit(body)
        await until_async(lambda: len(entered) == 3)
        return handle

    handle = loop.run_until_complete(main()) if closed else asyncio.run(main())
    loop.close()
    with pytest.raises(TaskAborted, match="loop_closed"):
        handle.result(PATIENCE_S)
    assert len(left) == 3
    assert holds_nothing(authority)


@pytest.mark.parametrize("closed", [False, True])
def test_a_handler_that_its_loop_never_comes_to_begin(authority, loop, closed):
    """W2, T2: the task ends all the same, as `loop_closed`, also where the loop is only stopped, and goes on later."""
    began, go = [], asyncio.Event()

    async def handler():
        began.append(1)

    async def body():
        await go.wait()
        context = whywait.current()
        context.handler(for_ever, began, after=[context.handler(handler)])
        loop.stop()
        await for_ever()

    async def submit():
        return authority.submit(body)

    handle = loop.run_until_complete(submit())
    loop.call_soon(go.set)
    loop.run_forever()
    if closed:
        loop.close()
    else:
        handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(PATIENCE_S)
    assert handle.cause == ("loop_closed" if closed else "cancelled")
    assert holds_nothing(authority)
    if not closed:
        loop.run_until_complete(nap())
    assert began == []


def test_a_block_in_an_asynchronous_generator_is_left_when_that_is_closed(authority):
    """O4: the scope is disposed of when `aclose()` returns."""

    async def lend():
        async with authority.scope("lent") as scope:
            scope.submit(for_ever)
            yield scope

    async def main():
        lending = lend()
        scope = await anext(lending)
        await lending.aclose()
        return scope.state

    assert asyncio.run(main()) == "DISPOSED"
    assert holds_nothing(authority)


def test_a_periodic_ends_with_its_loop(authority):
    """R6, T2: its next iteration has no loop; the periodic is switched off, once."""
    with authority.scope("beats") as scope:

        async def main():
            periodic = scope.periodic(nap, every=0.002, id="beat")
            await until_async(lambda: periodic.status().run_count > 1)
            return periodic

        periodic = asyncio.run(main())
        until(lambda: not periodic.enabled)
        off = [dict(event.details) for event in authority.events() if event.kind == "PERIODIC_DISABLED"]
        assert off == [{"reason": "loop_closed"}]


def test_a_retry_has_no_other_loop(authority):
    """T7, T2: a task that backs off while its loop ends is ended with it."""

    async def fails():
        raise ValueError

    async def main():
        handle = authority.submit(fails, retry=whywait.Retry(3, backoff=0.05))
        await until_async(lambda: len(handle.attempts) > 1)
        return handle

    handle = asyncio.run(main())
    with pytest.raises(TaskAborted, match="loop_closed"):
        handle.result(PATIENCE_S)
    assert end_of(handle) == LOST


def test_two_hundred_loops_leave_nothing(authority):
    """T9: neither loops nor what the authority kept of them; some end in the midst of their tasks."""
    loops = []

    async def main(number):
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert await authority.submit(nap, number) == number
        return [authority.submit(for_ever) for _ in range(number % 3)]

    for number in range(200):
        assert {end_of(handle) for handle in asyncio.run(main(number))} <= {LOST}
    gc.collect()
    assert [each() for each in loops if each() is not None] == []
    assert holds_nothing(authority)
    assert threading.active_count() < 20


def test_two_hundred_authorities_leave_nothing_on_a_loop():
    """T9: no timer of an authority that is gone stays on the loop it was used on."""

    async def main():
        gone = []
        for number in range(200):
            authority = Authority(slots=1)
            gone.append(weakref.ref(authority))
            assert await authority.submit(nap, number) == number
            await authority.dispose_async()
            del authority
        await asyncio.sleep(0)
        gc.collect()
        assert [each() for each in gone if each() is not None] == []

    asyncio.run(main())


def test_storm_of_loops(authority):
    """T2, T4: eight threads, each with loop after loop that ends at any moment."""
    handles = []

    async def main(number):
        mine = [authority.submit(nap if each % 2 else for_ever) for each in range(number % 7)]
        handles.extend(mine)
        for _ in range(number % 5):
            await asyncio.sleep(0)

    def loops(first):
        for number in range(first, first + 25):
            asyncio.run(main(number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(loops, range(8)))
    until(lambda: all(handle.done() for handle in handles))
    assert {end_of(handle) for handle in handles} <= {LOST, ("success", None)}
    assert holds_nothing(authority)
