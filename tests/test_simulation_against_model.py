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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(workloads())
def test_drawn_workloads(workload):
    """C0, P2 to P4, S1 to S5, B1 to B5, T6, T7, G1 to G6, D1 to D4, X1 to X4: small workloads, shrunk on failure."""
    check(workload)


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_seeded_workloads(first):
    """C0 and the rules above: the same recipe, in bulk."""
    for seed in range(first, first + 100):
        check(make_workload(Seeded(seed)))
