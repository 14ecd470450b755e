"""Waiters: a change is seen by the look before the sleep, or it rings the bell that ends the sleep."""

import asyncio
import threading

import pytest

from patience import PATIENCE_S
from stress import hasty_switches
from whywait.support.waiters import Waiters


def test_waiters_look_again_when_the_time_is_up():
    """W1: a last look decides, so that what came at the last moment counts."""
    waiters, looks = Waiters(), []
    assert waiters.wait(lambda: looks.append(None) or len(looks) == 2, timeout=0.001)
    assert not waiters.wait(lambda: False, timeout=0.001)


def test_a_ring_after_each_step_of_a_waiter_is_heard():
    """W1: while it asks what the lock does not guard, and while it looks: it looks once more."""
    for rings_in in ("between", "look"):
        waiters, steps = Waiters(), []

        def step(name, waiters=waiters, steps=steps, rings_in=rings_in):
            steps.append(name)
            if name == rings_in and steps.count(name) == 1:
                waiters.ring()
            return steps.count("look") == 2

        assert waiters.wait(lambda step=step: step("look"), PATIENCE_S, lambda step=step: step("between"))
        assert steps == ["between", "look"] * 2


def test_a_ring_after_each_step_of_a_coroutine_that_waits_is_heard():
    """W1: the same on an event loop."""

    async def main(rings_in):
        waiters, steps = Waiters(), []

        def step(name):
            steps.append(name)
            if name == rings_in and steps.count(name) == 1:
                waiters.ring()
            return steps.count("look") == 2

        async def between():
            step("between")

        await asyncio.wait_for(waiters.wait_async(lambda: step("look"), between), PATIENCE_S)
        assert steps == ["between", "look"] * 2

    for rings_in in ("between", "look"):
        asyncio.run(main(rings_in))


def test_waiters_that_leave_take_their_bells_along():
    """C1: by the time that is up, by an error, by success: nothing is left to ring."""
    waiters = Waiters()

    def fail():
        raise ValueError("asked to end")

    waiters.wait(lambda: False, timeout=0.001)
    waiters.wait(lambda: True)
    with pytest.raises(ValueError, match="asked to end"):
        waiters.wait(lambda: False, between=fail)

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiters.wait_async(lambda: False), 0.001)

    asyncio.run(main())
    assert not waiters._bells
    assert not waiters._awaited


def test_many_threads_hand_numbers_on_without_a_lost_ring():
    """W1: each waits for its number, with the interpreter switching as often as it can."""
    waiters, at = Waiters(), [0]
    rounds, players = 200, 4

    def play(index):
        for number in range(index, rounds * players, players):
            assert waiters.wait(lambda number=number: at[0] == number, PATIENCE_S), at
            with waiters.lock:
                at[0] += 1
            waiters.ring()

    with hasty_switches():
        threads = [threading.Thread(target=play, args=(index,)) for index in range(players)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert at == [rounds * players]
