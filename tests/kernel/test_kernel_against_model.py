"""The kernel decides, says and counts exactly what the plain model does, whatever it is told in whatever order."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import drive, make_settings
from pair import MS_NS, Pair
from strategies import Drawn, Seeded
from whywait.kernel import benches, fifo, graph, timers, waiting

SEEDS = 400
STEPS = 60


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.integers(1, STEPS))
def test_drawn_commands(data, steps):
    """P2 to P6, S1 to S5, B1 to B5, T1 to T7, G1 to G6, D1 to D6, X1 to X4, O1 to O4, O7, R2 to R6, V2, V3, V7."""
    drive(Drawn(data.draw), steps)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_seeded_commands(first):
    """The rules above, in bulk; after each command the invariants hold (S2, B1, P6) and waits add up (V1, V7)."""
    for seed in range(first, first + 50):
        drive(Seeded(seed), STEPS)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.integers(1, STEPS))
def test_drawn_commands_with_devices(data, steps):
    """N1, N2, N3, N5 and all of the above: units are shared, taken whole, die and come back."""
    drive(Drawn(data.draw), steps, devices=True)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_seeded_commands_with_devices(first):
    """N1, N2, N3, N5, in bulk; after each command no unit is over its memory, or shared that a task has whole."""
    for seed in range(first, first + 50):
        drive(Seeded(seed), STEPS, devices=True)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_seeded_commands_with_bodies_that_wait(first):
    """V1, V3, S7: that a body waits for another task is told; its slots are lent meanwhile, and never exceeded."""
    for seed in range(first, first + 50):
        drive(Seeded(seed), STEPS, blocks=True)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_seeded_commands_with_processes_that_are_stopped(first):
    """M15, X1, X2: a stop and a pause are apart, a task goes on when neither holds, and its timeout stands still."""
    for seed in range(first, first + 50):
        drive(Seeded(seed), STEPS, stops=True)


def test_long_runs():
    """V2, V3, V7: accounts stay exact over hundreds of commands."""
    for seed in range(5):
        drive(Seeded(seed), 400)


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_tiny_blocks(monkeypatch, first):
    """P2, P6, V7: what the kernel does at thousands of tasks only (splitting, sweeping, trimming), it does right."""
    for module, limit, value in (
        (benches, "_BLOCK", 2),
        (fifo, "_BLOCK", 2),
        (fifo, "_TRIM", 1),
        (graph, "_SLACK", 0),
        (timers, "_SLACK", 0),
        (waiting, "_SWEEP_EMPTY_LANES", 1),
    ):
        assert hasattr(module, limit)
        monkeypatch.setattr(module, limit, value)
    for seed in range(first, first + 50):
        drive(Seeded(seed), STEPS)
        drive(Seeded(-seed), STEPS)
        drive(Seeded(seed), STEPS, devices=True)


def plain_pair(**changes):
    """Unlimited slots, no budget, strict order, but for the changes."""
    plain = {"limits": {}, "hard": {}, "soft": {}, "aging": None, "backfill": "greedy", "policy": {}}
    return Pair(make_settings(Seeded(0)) | plain | changes)


def submit(pair, name, priority=50, **demand):
    pair.submit(0, name, priority=priority, demand=demand, after=[], after_ended=[], policy=None)
    return max(pair.tasks)


def test_an_overdrawn_soft_limit_is_not_handed_on():
    """B2: the next of the same lane asks for more than there is, and this time another task holds a slot."""
    pair = plain_pair(limits={"slots": 2}, soft={"ram": 4})
    first, other = submit(pair, "first", ram=9), submit(pair, "other")
    pair.dispatch()
    second = submit(pair, "second", ram=9)
    pair.dispatch()
    pair.pass_time(MS_NS)
    pair.on_task("ended", first, "success")
    pair.dispatch()
    assert pair.tasks[second].state == "READY"
    pair.on_task("ended", other, "success")
    pair.dispatch()
    assert pair.tasks[second].state == "RUNNING"


@pytest.mark.parametrize("verb", ["cancel", "pause"])
@pytest.mark.parametrize("resource", [{"hard": {"cpu": 1}}, {"soft": {"cpu": 1}}])
def test_a_lane_learns_that_its_gate_opened_though_its_head_leaves(verb, resource):
    """P2, X1, X3: the gate opens and the head leaves in the same instant, so the next one starts."""
    pair = plain_pair(**resource)
    holder, head, follower = (submit(pair, name, cpu=1) for name in ("holder", "head", "follower"))
    pair.dispatch()
    pair.pass_time(MS_NS)
    pair.on_task("ended", holder, "success")
    pair.on_task(verb, head)
    pair.dispatch()
    assert pair.tasks[follower].state == "RUNNING"


def digest(seed: int) -> str:
    """The raw events of a run, byte for byte."""
    return hashlib.sha256(repr(drive(Seeded(seed), STEPS).raw_events).encode()).hexdigest()


@pytest.mark.parametrize("seed", range(3))
def test_the_same_commands_give_the_same_bytes(seed):
    """V3: in the same process and in others, whatever order sets and dicts of strings hash to there."""
    here = digest(seed)
    assert digest(seed) == here
    code = f"from test_kernel_against_model import digest; print(digest({seed}))"
    for hash_seed in ("0", "4711"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        folder = Path(__file__).parent
        there = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, check=True
        )
        assert there.stdout.decode().strip() == here
