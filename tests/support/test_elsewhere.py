"""G4: results that are kept elsewhere come here when somebody asks, and never by way of a frozen event loop."""

import asyncio
import threading

import pytest

from whywait import Authority, TaskFailed
from whywait.support.elsewhere import Elsewhere


class Far(Elsewhere):
    """A result that notes which thread fetched it."""

    def __init__(self, value):
        self.value = value
        self.threads = []

    def fetch(self):
        self.threads.append(threading.get_ident())
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


async def double(value, *, plus=0):
    """Return twice the value, in a coroutine."""
    return 2 * value + plus


def far(authority, value):
    """Return a task that has succeeded and whose result is elsewhere."""
    handle = authority.submit(int)
    handle.result(10)
    handle.value = Far(value)
    return handle


def test_a_coroutine_gets_a_far_result_without_freezing_its_loop():
    """G4: as an argument, by position or by name, and by awaiting it."""

    async def main():
        async with Authority(slots=2) as authority:
            first, second = await asyncio.to_thread(far, authority, 20), await asyncio.to_thread(far, authority, 2)
            assert await authority.submit(double, first, kwargs={"plus": second}) == 42
            assert await first == 20
            return first.value.threads[:1] + second.value.threads[:1]

    fetched_by = asyncio.run(main())
    assert fetched_by
    assert threading.get_ident() not in fetched_by


@pytest.mark.parametrize("fn", [double, abs], ids=["coroutine", "thread"])
def test_a_far_result_that_is_lost_is_the_error_of_who_needs_it(fn):
    """G4, T2: nothing hangs."""
    with Authority(slots=2) as authority:
        needs = authority.submit(fn, far(authority, TaskFailed("it was lost")))
        with pytest.raises(TaskFailed, match="it was lost"):
            needs.result(10)
