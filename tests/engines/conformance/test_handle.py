"""T: what a handle does for whoever waits for it."""

import asyncio
import concurrent.futures
import threading

import pytest
from bodies import Oops

from patience import PATIENCE_S, until, until_async
from whywait.errors import TaskAborted, WhywaitError


def test_a_waiter_that_gives_up_does_not_cancel_the_task(authority, body, stage):
    """T6: `result(timeout)` ends the waiting only."""
    handle = authority.submit(body.hold, stage, "a", "gate")
    for wait in (handle.result, handle.exception):
        for timeout in (0, 0.02):
            with pytest.raises(TimeoutError):
                wait(timeout)
    assert (handle.done(), handle.outcome) == (False, None)
    stage.mark("gate")
    assert handle.result(PATIENCE_S) == "a"


def test_many_threads_can_wait_for_one_task(authority, body, stage):
    """T5: each gets the result."""
    handle = authority.submit(body.hold, stage, "a", "gate")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(handle.result, PATIENCE_S) for _ in range(8)]
        stage.mark("gate")
        assert {each.result() for each in waiting} == {"a"}


def test_callbacks_are_called_once_with_the_handle(authority, body, stage):
    """T5: in the order in which they were added; one that is added after the end is called at once."""
    handle = authority.submit(body.hold, stage, "a", "gate")
    told = []
    handle.add_done_callback(lambda each: told.append(("first", each.result())))
    handle.add_done_callback(lambda each: told.append(("second", each.outcome)))
    stage.mark("gate")
    handle.result(PATIENCE_S)
    until(lambda: len(told) == 2)
    handle.add_done_callback(lambda each: told.append(("late", each is handle)))
    assert told == [("first", "a"), ("second", "success"), ("late", True)]


def test_callbacks_tell_of_every_kind_of_end(authority, body, stage):
    """T2: error, timeout and cancellation, of what ran and of what waited."""
    told = []
    handles = [
        authority.submit(body.fail, "x"),
        authority.submit(body.hold, stage, "t", "never", timeout=0.05),
        authority.submit(body.hold, stage, "c", "never"),
        authority.submit(body.value),
    ]
    for handle in handles:
        handle.add_done_callback(lambda each: told.append(each.outcome))
    handles[3].cancel()
    stage.wait("c")
    handles[2].cancel()
    until(lambda: len(told) == 4)
    assert sorted(told) == ["aborted", "aborted", "error", "timeout"]


def logged(caplog):
    """Return how many errors of callbacks of the task `job` were logged, with their tracebacks."""
    return sum("job" in record.getMessage() and bool(record.exc_info) for record in caplog.records)


def test_a_failing_callback_is_logged_and_breaks_nothing(authority, body, stage, caplog):
    """T5: the other callbacks are called, the next task runs."""
    handle = authority.submit(body.hold, stage, "a", "gate", id="job")
    told = []
    handle.add_done_callback(lambda _: 1 / 0)
    handle.add_done_callback(told.append)
    stage.mark("gate")
    assert handle.result(PATIENCE_S) == "a"
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1
    until(lambda: told == [handle])
    assert logged(caplog) == 1
    handle.add_done_callback(lambda _: 1 / 0)
    assert logged(caplog) == 2


def test_a_callback_that_wants_to_end_the_program_breaks_nothing(authority, body, stage, caplog):
    """T5: what a callback raises is logged, whatever it is; scheduling goes on."""
    handle = authority.submit(body.hold, stage, "a", "gate", id="job")
    later = [authority.submit(body.value, i) for i in range(3)]

    def callback(_):
        raise SystemExit

    handle.add_done_callback(callback)
    stage.mark("gate")
    assert [each.result(PATIENCE_S) for each in later] == [0, 1, 2]
    assert handle.result(PATIENCE_S) == "a"
    until(lambda: logged(caplog) == 1)


def test_a_slow_callback_does_not_hold_up_what_may_start(wide, body, stage, promises):
    """T5: the next task starts while a callback of the last one still runs, where there is somebody to run it."""
    first = wide.submit(body.hold, stage, "a", "gate", id="first")
    seen = []
    can_do_both = promises.form == "plain" and promises.crowd > 1  # one thread cannot; on a loop it may not block

    def callback(_):
        try:
            seen.append(second.result(PATIENCE_S if can_do_both else 0))
        except (WhywaitError, TimeoutError) as error:
            seen.append(type(error))

    first.add_done_callback(callback)
    second = wide.submit(body.value, 2, after=[first])
    stage.mark("gate")
    until(lambda: seen)
    if can_do_both:
        assert seen == [2]
    assert second.result(PATIENCE_S) == 2


def test_a_handle_can_be_awaited(make, body):
    """T5: on the loop of an `async with` block; results and own errors come out as from `result`."""

    async def main():
        async with make(slots=2) as authority:
            handles = [authority.submit(body.value, i) for i in range(10)]
            assert [await handle for handle in handles] == list(range(10))
            assert await asyncio.gather(*(authority.submit(body.value, i) for i in range(10))) == list(range(10))
            with pytest.raises(Oops, match="broken"):
                await authority.submit(body.fail, "broken")
            done = handles[0]
            assert await done == 0

    asyncio.run(main())


def test_a_handle_can_be_awaited_from_any_loop(authority, body, stage):
    """T5: also from two loops at once, neither of which is the engine's."""
    handle = authority.submit(body.hold, stage, "a", "gate")

    async def main():
        return await handle

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(asyncio.run, main()) for _ in range(2)]
        stage.mark("gate")
        assert [each.result(PATIENCE_S) for each in waiting] == ["a", "a"]


def test_an_authority_outlives_the_loop_it_was_used_on(authority, body):
    """T4: tasks submitted on one loop, and then on the next, run; so do those submitted without any."""

    async def main(value):
        return await asyncio.wait_for(authority.submit(body.value, value), PATIENCE_S)

    assert asyncio.run(main(1)) == 1
    assert asyncio.run(main(2)) == 2
    assert authority.submit(body.value, 3).result(PATIENCE_S) == 3


def test_cancelling_who_awaits_does_not_cancel_the_task(make, body, stage):
    """T6: giving up waiting is not cancelling; `asyncio.wait_for` ends the waiting only."""

    async def main():
        async with make() as authority:
            handle = authority.submit(body.hold, stage, "a", "gate")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_wait(handle), 0.02)
            assert not handle.done()
            stage.mark("gate")
            return await handle

    async def _wait(handle):
        return await handle

    assert asyncio.run(main()) == "a"


def test_a_task_submitted_and_cancelled_on_the_loop_ends(make, body, stage):
    """X3: cancelled before the loop has come to its first step, it is ABORTED like any other."""

    async def main():
        async with make() as authority:
            handle = authority.submit(body.hold, stage, "a", "never")
            handle.cancel()
            with pytest.raises(TaskAborted):
                await asyncio.wait_for(_wait(handle), PATIENCE_S)
            assert await authority.submit(body.value, 1) == 1

    async def _wait(handle):
        return await handle

    asyncio.run(main())


def test_blocking_calls_on_a_loop_raise_and_change_nothing(make, body, stage):
    """T5, X1, O4: they say what to await instead; the task, the pause and the scope are as before."""

    async def main():
        async with make(pause_timeout=0.2) as authority:
            scope = authority.scope("s")
            handle = scope.submit(body.hold, stage, "a", "gate")
            await until_async(lambda: stage.has("a"))
            for call in (handle.result, handle.exception, handle.pause, scope.dispose, authority.dispose, scope.wait):
                with pytest.raises(WhywaitError, match=r"await|async with"):
                    call()
            assert (handle.state, scope.state) == ("RUNNING", "RUNNING")
            stage.mark("gate")
            return await handle

    assert asyncio.run(main()) == "a"


def test_a_future_follows_the_handle(authority, body, stage):
    """T5, T7: to the final outcome, through retries; it works with `wait` and `as_completed`."""
    handles = [authority.submit(body.value, 1), authority.submit(body.flaky, stage, "a", 1, retry=1)]
    broken, held = authority.submit(body.fail, "x"), authority.submit(body.hold, stage, "held", "gate")
    dropped = authority.submit(body.value, after=[held])  # it cannot be faster than who cancels it
    futures = [handle.future() for handle in (*handles, broken, dropped)]
    dropped.cancel()
    stage.mark("gate")
    done, pending = concurrent.futures.wait(futures, PATIENCE_S)
    assert (len(done), len(pending)) == (4, 0)
    assert [future.result() for future in futures[:2]] == [1, 2]
    assert isinstance(futures[2].exception(), Oops)
    assert isinstance(futures[3].exception(), TaskAborted)
    assert set(concurrent.futures.as_completed(futures, PATIENCE_S)) == set(futures)
    assert handles[0].future().result(PATIENCE_S) == 1


def test_cancelling_a_future_reaches_the_task(authority, body, stage):
    """X3: the task is asked to end; the future follows when it has."""
    running, pending = authority.submit(body.hold, stage, "a", "never"), authority.submit(body.value)
    stage.wait("a")
    futures = [handle.future() for handle in (pending, running)]
    for future in futures:
        future.cancel()
    concurrent.futures.wait(futures, PATIENCE_S)
    assert (running.outcome, pending.outcome) == ("aborted", "aborted")
    assert stage.has("a.left")


def test_the_outcome_is_never_seen_half_made(authority, body, stage):
    """T2: whoever sees that a task is done sees its final error, not what the body raised on its way out."""
    wrong = []
    for i in range(40):
        handle = authority.submit(body.hold, stage, f"a{i}", "never")

        def look(handle=handle):
            while not handle.done():
                pass
            error = handle.exception()
            if type(error) is not TaskAborted or "cancelled" not in str(error) or handle.outcome != "aborted":
                wrong.append(repr(error))

        looker = threading.Thread(target=look)
        stage.wait(f"a{i}")
        looker.start()
        handle.cancel()
        looker.join(PATIENCE_S)
    assert not wrong
