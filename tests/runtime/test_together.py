"""Several handles waited for together, in threads and on event loops."""

import asyncio
import concurrent.futures
import threading

import pytest

import whywait
from patience import PATIENCE_S
from whywait import Authority
from whywait.errors import ConfigError, WhywaitError


@pytest.fixture
def authority():
    with Authority(slots=4) as each:
        yield each


@pytest.fixture
def gate(authority):
    """An event that ends with the test, so that no task waits for ever."""
    event = threading.Event()
    yield event
    event.set()


def fail():
    raise ValueError("no")


def in_turn(authority, count):
    """Submit tasks that end in the order of their numbers."""
    handles = [authority.submit(int, id="0")]
    for number in range(1, count):
        handles.append(authority.submit(lambda n=number: n, id=str(number), after=[handles[-1]]))
    return handles


def test_wait_returns_all_in_the_order_given(authority):
    handles = in_turn(authority, 5)
    done, pending = whywait.wait(reversed(handles), timeout=PATIENCE_S)
    assert [each.id for each in done] == ["4", "3", "2", "1", "0"]
    assert pending == []


def test_wait_returns_with_the_first(authority, gate):
    slow, quick = authority.submit(gate.wait), authority.submit(int)
    assert whywait.wait([slow, quick], timeout=PATIENCE_S, return_when="first") == ([quick], [slow])


def test_wait_returns_with_the_first_error(authority, gate):
    slow, well, wrong = authority.submit(gate.wait), authority.submit(int), authority.submit(fail)
    done, pending = whywait.wait([slow, well, wrong], timeout=PATIENCE_S, return_when="first_error")
    assert wrong in done
    assert pending == [slow]
    assert wrong.exception() is not None


def test_a_timeout_ends_the_waiting_only(authority, gate):
    slow = authority.submit(gate.wait)
    assert whywait.wait([slow], timeout="10ms") == ([], [slow])
    with pytest.raises(TimeoutError, match="1 of 1 task has not ended after 10ms; it goes on"):
        whywait.gather(slow, timeout="10ms")
    with pytest.raises(TimeoutError, match="1 of 1"):
        list(whywait.as_completed([slow], timeout=0.01))
    gate.set()
    assert slow.result(PATIENCE_S) is True


def test_futures_of_an_executor_are_waited_for_like_handles():
    """A timeout leaves no callback behind, and takes none from the threads that wait for the future itself."""
    gate, called, waiting = threading.Event(), [], []
    with whywait.Executor(4) as executor:
        future = executor.submit(gate.wait, PATIENCE_S)
        threads = [threading.Thread(target=lambda: waiting.append(future.result(PATIENCE_S))) for _ in range(4)]
        for thread in threads:
            thread.start()
            assert whywait.wait([future], timeout=0.01) == ([], [future])
            with pytest.raises(TimeoutError):
                list(whywait.as_completed([future], timeout=0.01))
        future.add_done_callback(called.append)
        future.add_done_callback(called.append)
        assert future.remove_done_callback(called.append) == 2
        assert future.remove_done_callback(called.append) == 0
        gate.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert waiting == [True] * 4
    assert called == []


def test_gather_returns_results_in_order_and_raises_the_first_error(authority, gate):
    assert whywait.gather(*in_turn(authority, 4), timeout=PATIENCE_S) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="no"):
        whywait.gather(authority.submit(gate.wait), authority.submit(fail))


def test_as_completed_yields_what_has_ended_while_the_rest_runs(authority, gate):
    ended, slow = authority.submit(str), authority.submit(gate.wait)
    ends = iter(whywait.as_completed([slow, ended]))
    assert next(ends) is ended
    gate.set()
    assert list(ends) == [slow]


def test_all_of_it_on_an_event_loop(authority, gate):
    async def main():
        handles = in_turn(authority, 4)
        assert {each.id async for each in whywait.as_completed(handles)} == {"0", "1", "2", "3"}
        assert await whywait.gather_async(*handles) == [0, 1, 2, 3]
        slow = authority.submit(gate.wait)
        assert await whywait.wait_async([slow, handles[0]], return_when="first") == ([handles[0]], [slow])
        assert await whywait.wait_async([slow], timeout=0.01) == ([], [slow])
        assert await whywait.wait_async([slow], timeout="10ms") == ([], [slow])
        with pytest.raises(TimeoutError, match="1 of 1 task has not ended after 10ms; it goes on"):
            await whywait.gather_async(slow, timeout="10ms")
        with pytest.raises(TimeoutError, match="1 of 2 tasks has not ended after 10ms"):
            assert [each async for each in whywait.as_completed([slow, handles[0]], timeout="10ms")] == []
        assert slow.callbacks is None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow, 0.01)
        assert slow.waiters == []
        with pytest.raises(WhywaitError, match=r"wait\(\) would freeze .*`await whywait\.wait_async"):
            whywait.wait([slow])
        with pytest.raises(WhywaitError, match="async for"):
            list(whywait.as_completed([slow]))
        assert whywait.wait(handles).pending == []  # nothing to wait for: nothing freezes

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_asyncio_wait_takes_handles(authority, gate):
    """The callbacks of asyncio itself are called on its loop."""

    async def main():
        well, wrong, slow = authority.submit(int), authority.submit(fail), authority.submit(gate.wait)
        done, pending = await asyncio.wait([well, wrong])
        assert done == {well, wrong}
        assert pending == set()
        done, pending = await asyncio.wait([wrong, slow], return_when=asyncio.FIRST_EXCEPTION)
        assert (done, pending) == ({wrong}, {slow})
        assert await asyncio.wait([slow], timeout=0.01) == (set(), {slow})
        assert slow.callbacks is None
        assert await asyncio.gather(well, authority.submit(int, "7")) == [0, 7]

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_task_may_be_cancelled_with_what_awaits_it(authority, gate, cancelled):
    """X3: a request that is gone takes its task along, if it was submitted so."""

    async def main():
        handle = authority.submit(gate.wait, cancel_with_awaiter=cancelled)
        behind = authority.submit(gate.wait)
        pending = authority.submit(int, after=[behind], cancel_with_awaiter=cancelled)
        for each in (handle, pending):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(each, 0.01)
        gate.set()
        await whywait.wait_async([handle, pending])
        return handle.outcome, pending.outcome

    expected = ("aborted", "aborted") if cancelled else ("success", "success")
    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == expected


@pytest.mark.parametrize(
    "use", [concurrent.futures.wait, lambda several: list(concurrent.futures.as_completed(several))]
)
def test_concurrent_futures_says_what_to_use(authority, use):
    handle = authority.submit(int)
    with pytest.raises(TypeError, match=r"use whywait\.wait, .* handle\.future\(\)"):
        use([handle])
    assert concurrent.futures.wait([handle.future()], timeout=PATIENCE_S).not_done == set()


def test_bad_arguments_are_refused(authority):
    with pytest.raises(ConfigError, match="3 is not a handle"):
        whywait.wait([3])
    with pytest.raises(ConfigError, match="return_when 'any' is not allowed"):
        whywait.wait([], return_when="any")
    assert whywait.wait([]) == ([], [])
    assert whywait.gather() == []


def test_handles_whose_end_is_awaited_stay_handles_in_a_container(authority):
    """G4, G6: the body asks them how they have ended."""
    wrong = authority.submit(fail)
    told = authority.submit(lambda handles: [each.outcome for each in handles], [wrong], after_ended=[wrong])
    assert told.result(PATIENCE_S) == ["error"]
    assert wrong.exception() is not None
