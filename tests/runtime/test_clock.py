"""The clock, when an exception out of nowhere breaks off what sets it."""

import time

import pytest

from interrupts import OURS, Interrupt, at_every_place
from patience import until
from whywait.runtime.clock import Clock
from whywait.support.logger import log


@pytest.mark.parametrize("sets", ["tick_at", "call_at"])
def test_what_is_set_again_after_an_interrupt_is_not_slept_through(sets):
    """R2: wherever it was broken off, in the standard library too, setting it again wakes the clock's thread."""

    def attempt(place):
        acted = []
        clock = Clock(lambda: acted.append(1), log)
        clock.call_at(time.monotonic_ns() + 10**12, int)
        until(lambda: clock._condition._waiters)

        def act():
            at_ns = time.monotonic_ns() + 1_000_000
            if sets == "tick_at":
                clock.tick_at(at_ns)
            else:
                clock.call_at(at_ns, lambda: acted.append(1))

        try:
            with Interrupt(place, modules=(*OURS, "threading")) as interrupt:
                act()
            time.sleep(0.02)
            if interrupt.where is not None:
                act()
            until(lambda: acted, interrupt.where)
        finally:
            clock.close()
        return interrupt.where

    at_every_place(attempt)
