"""A3: one source, compiled and interpreted: the types say what the files say, and both cores do the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import runs
from cores import COMPILED
from whywait.errors import ConfigError
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, Policy, make_demand

LAST = 1 << 61


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled here")
def test_both_cores_tell_the_same():
    """A3: random commands and workloads give the same events, to the byte."""
    first, last = 0, 40
    script = str(Path(runs.__file__))
    run = subprocess.run(
        [sys.executable, script, "--interpreted", str(first), str(last)], capture_output=True, text=True, check=True
    )
    core, *interpreted = run.stdout.splitlines()
    assert core.endswith(".py")
    assert len(interpreted) == 5 * (last - first)
    assert runs.told(first, last) == interpreted


# At the borders of a machine's integers


def test_amounts_times_times_are_exact():
    """B1, A3: what was held of a resource, times how long, has more bits than a machine's integer."""
    kernel = Kernel(Limits(slots=10**18), Budget({"ram": 10**18}))
    task = kernel.submit(0, kernel.root, demand=make_demand(ram=10**18))
    kernel.dispatch(0)
    gate = kernel.resources["ram"]
    assert kernel.used_ns(LAST, gate) == 10**18 * LAST
    kernel.ended(LAST, task, "success")
    assert gate.use_ns == 10**18 * LAST
    assert gate.free == 10**18
    assert kernel.slots.use_ns == LAST


@pytest.mark.parametrize("high", [31, 32, 62, 63, 64, 99, 100])
def test_every_priority_holds_its_own_slot(high):
    """V2, A3: also those for which an integer of the machine has no bit."""
    kernel = Kernel(Limits(slots=1))
    holder = kernel.submit(0, kernel.root, priority=high)
    low = kernel.submit(0, kernel.root, priority=high - 1)
    beside = kernel.submit(0, kernel.root, priority=100, slot=False)
    assert kernel.dispatch(0).started == [beside, holder] or kernel.running.keys() == {holder.number, beside.number}
    kernel.ended(7, holder, "success")
    assert kernel.dispatch(7).started == [low]
    assert low.waits == {"slot_higher": 7}
    assert kernel.holding == 1 << high - 1


def test_times_up_to_the_last_are_exact():
    """T6, V2: a wait of 73 years, and a timeout that is due after it."""
    kernel = Kernel(Limits(slots=1))
    first = kernel.submit(0, kernel.root)
    second = kernel.submit(0, kernel.root, policy=Policy(timeout_ns=LAST))
    kernel.dispatch(0)
    kernel.ended(LAST, first, "success")
    assert kernel.dispatch(LAST).started == [second]
    assert second.waits == {"slot": LAST}
    assert kernel.next_deadline() == 2 * LAST


@pytest.mark.parametrize("amount", [10**18 + 1, 2**63 - 1, 2**63, 2**64, 10**30])
def test_what_cannot_be_counted_is_refused(amount):
    """E1: with an error that says so, and nothing has changed."""
    kernel = Kernel(Limits(slots=1), Budget({"ram": 10}))
    for act in (
        lambda: Limits(slots=amount),
        lambda: Budget({"ram": amount}),
        lambda: make_demand(ram=amount),
        lambda: kernel.resize(0, "ram", amount),
        lambda: kernel.submit(0, kernel.root, demand=(("cpu", amount),)),
        lambda: Policy(timeout_ns=amount * 10),
    ):
        with pytest.raises(ConfigError, match="is not allowed: use at most"):
            act()
    assert kernel.stats.numbered == 0
    assert kernel.resources["ram"].limit == 10


@pytest.mark.parametrize("priority", [True, False, 101, -1, 2**31, 2**63, 2**64, 1.0, "50", None])
def test_what_is_no_priority_is_refused(priority):
    """P1: whether its number has a lane or not."""
    kernel = Kernel()
    for known in (0, 1, 50, 100):
        kernel.submit(0, kernel.root, priority=known)
    with pytest.raises(ConfigError, match="priority"):
        kernel.submit(0, kernel.root, None, priority)
    assert kernel.stats.numbered == 4
