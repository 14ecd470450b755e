"""C0: the simulation's events and final states are exactly those of the plain model."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from model.simulate import simulate
from strategies import Seeded, make_workload, workloads
from whywait import Simulation

SEEDS = 400


def check(workload):
    result = Simulation(workload).run().to_dict()
    expected = simulate(workload)
    assert result["events"] == expected["events"]
    assert result["final"] == expected["final"]
    assert result.get("devices", {}) == expected["devices"]


CASES = {
    "P2: the head of a lane leaves at the instant its gate opens": {
        "config": {"cpu": 1},
        "tasks": [
            {"id": "holder", "at_ms": 0, "duration_ms": 10, "cpu": 1},
            {"id": "head", "at_ms": 0, "duration_ms": 1, "cpu": 1},
            {"id": "next", "at_ms": 0, "duration_ms": 1, "cpu": 1},
        ],
        "ops": [{"at_ms": 10, "do": "cancel", "id": "head"}],
    },
    "B2: the head of a lane leaves at the instant nobody holds a slot": {
        "config": {"ram": 1},
        "tasks": [
            {"id": "holder", "at_ms": 0, "duration_ms": 10},
            {"id": "head", "at_ms": 0, "duration_ms": 1, "ram": 7},
            {"id": "next", "at_ms": 0, "duration_ms": 1, "ram": 7},
        ],
        "ops": [{"at_ms": 10, "do": "pause", "id": "head"}],
    },
    "D2: the victim of the inner limit and its child make room in the outer limit too": {
        "config": {
            "slots": 1,
            "queue_limit": 4,
            "overflow": "displace",
            "scopes": {"inner": {"queue_limit": 2, "overflow": "displace"}},
        },
        "tasks": [
            {"id": "holder", "at_ms": 0, "duration_ms": 10},
            {"id": "lowest", "at_ms": 1, "duration_ms": 1, "priority": 0},
            {"id": "low", "at_ms": 1, "duration_ms": 1, "priority": 20, "scope": "inner"},
            {"id": "child", "at_ms": 1, "duration_ms": 1, "priority": 80, "scope": "inner", "after": ["low"]},
            {"id": "other", "at_ms": 1, "duration_ms": 1, "priority": 50},
            {"id": "new", "at_ms": 1, "duration_ms": 1, "priority": 50, "scope": "inner"},
        ],
    },
    "D3: a task woken by an expiry gets its chance before its own": {
        "config": {"slots": 1},
        "tasks": [
            {"id": "holder", "at_ms": 0, "duration_ms": 10},
            {"id": "first", "at_ms": 0, "duration_ms": 1, "max_wait_ms": 5},
            {"id": "second", "at_ms": 0, "duration_ms": 1, "max_wait_ms": 0, "after_ended": ["first"]},
        ],
    },
    "T6: a timeout and a backoff at the same instant": {
        "config": {"slots": 2},
        "tasks": [
            {"id": "slow", "at_ms": 0, "duration_ms": 50, "timeout_ms": 9},
            {"id": "again", "at_ms": 0, "duration_ms": 5, "retry": 1, "fails": 1, "backoff_ms": 4},
            {"id": "then", "at_ms": 0, "duration_ms": 1, "after_ended": ["slow"]},
        ],
    },
    "T3: a task that waits for itself": {
        "tasks": [{"id": "loop", "at_ms": 0, "duration_ms": 1, "after": ["loop"]}],
    },
}


@pytest.mark.parametrize("rule", CASES)
def test_chosen_workloads(rule):
    """P2, B2, D2, D3, T3, T6: cases that random workloads seldom meet."""
    check(CASES[rule])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(workloads())
def test_drawn_workloads(workload):
    """C0, P2 to P4, S1 to S5, B1 to B5, T6, T7, G1 to G6, D1 to D4, X1 to X4: small workloads, shrunk on failure."""
    check(workload)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(workloads(devices=True))
def test_drawn_workloads_with_devices(workload):
    """N2, N3: the same with units to share and to take whole; each task gets the units that the model says."""
    check(workload)


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_seeded_workloads_with_devices(first):
    """N2, N3, C0: in bulk."""
    for seed in range(first, first + 100):
        check(make_workload(Seeded(seed), devices=True))


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_seeded_workloads(first):
    """C0 and the rules above: the same recipe, in bulk."""
    for seed in range(first, first + 100):
        check(make_workload(Seeded(seed)))
