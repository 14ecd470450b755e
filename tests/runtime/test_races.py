"""What happens at the same moment in several threads, with an interpreter that switches between them all the time."""

import asyncio
import sys
import threading
from functools import partial

import pytest

from patience import PATIENCE_S, until
from whywait import Authority


@pytest.fixture(autouse=True)
def switching_all_the_time():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def all_at_once(*acts):
    """Run functions in threads that begin together; raise what any of them raises."""
    barrier, errors = threading.Barrier(len(acts)), []

    def run(act):
        barrier.wait(PATIENCE_S)
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread hangs"
    for error in errors:
        raise error


def fail():
    raise ValueError


async def nap():
    await asyncio.sleep(0)


def test_an_error_that_ends_a_scope_is_raised_by_its_block():
    """O10: the error is there when the block is left, however soon that is after the end of the task."""
    with Authority(slots=4) as authority:
        for number in range(300):
            with pytest.raises(ExceptionGroup), authority.scope(f"s{number}", on_error="abort") as scope:
                scope.submit(fail)


def test_a_wait_that_times_out_as_the_task_ends():
    """T2: it raises TimeoutError or returns the result, nothing else."""
    with Authority(slots=2) as authority:
        for _ in range(150):
            handle = authority.submit(int)

            def wait(handle=handle):
                for _ in range(20):
                    try:
                        assert handle.result(1e-6) == 0
                    except TimeoutError:
                        continue

            all_at_once(wait, wait)
            assert handle.result(PATIENCE_S) == 0


def test_an_authority_is_disposed_of_by_several_threads():
    """O4: each thing that was to be closed with it is closed once, and no thread gets an error."""
    for _ in range(40):
        authority, closed = Authority(slots=1), []
        authority.submit(nap)  # it makes the event loop that the authority has of its own
        authority._on_close += [partial(closed.append, number) for number in range(30)]
        all_at_once(*[authority.dispose] * 4)
        assert sorted(closed) == list(range(30))


def test_a_subscription_ends_while_another_begins():
    """V3: the new subscriber hears every event from then on."""
    with Authority(slots=1) as authority:
        for _ in range(150):
            end_first, heard, ends = authority.subscribe(lambda _: None), [], []
            all_at_once(end_first, lambda: ends.append(authority.subscribe(heard.append)))  # noqa: B023
            handle = authority.submit(int)
            assert handle.result(PATIENCE_S) == 0
            until(lambda: heard and heard[-1].kind == "TASK_FINISHED")  # noqa: B023 - it is told after the result is there
            kinds = [event.kind for event in heard if event.number == handle.ref.number]
            assert kinds == ["TASK_SUBMITTED", "TASK_STARTED", "TASK_FINISHED"]
            ends[0]()
