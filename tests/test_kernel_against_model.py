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

from commands import drive
from strategies import Drawn, Seeded

TESTS = Path(__file__).parent
SEEDS = 300
STEPS = 60


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.integers(1, STEPS))
def test_drawn_commands(data, steps):
    """P2 to P6, S1 to S5, B1 to B5, T1 to T7, G1 to G6, D1 to D6, X1 to X4, O1 to O4, O7, R2 to R6, V2, V3, V7."""
    drive(Drawn(data.draw), steps)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_seeded_commands(first):
    """The rules above, in bulk; after each command the invariants hold (S2, B1, P6) and waits add up (V1, V7)."""
    for seed in range(first, first + 50):
        drive(Seeded(seed), STEPS)


def test_long_runs():
    """V2, V3, V7: accounts stay exact over hundreds of commands."""
    for seed in range(5):
        drive(Seeded(seed), 400)


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
