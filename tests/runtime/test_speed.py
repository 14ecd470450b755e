"""The guard of the speed: how many bytecodes the steps of a task take, which no other program on the machine disturbs.

What that comes to in time, beside other executors, ``make bench`` measures (docs/benchmarks.md).
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from cost import OPTIONS, TRACED, bytecodes, bytecodes_of_more

# A twentieth more than docs/decisions.md tells for CPython 3.11; others divide the same work into other bytecodes.
MOST = {
    "submit": 520,
    "start and end": 855,
    "submit with options": 630,
    "start and end with options": 970,
    "cancel": 795,
    "end one of many with their scope": 395,
    "step of a chain": 1130,
}
LEEWAY = 1.0 if sys.version_info < (3, 12) else 1.25


@pytest.fixture(scope="module")
def counted():
    submit, run = bytecodes()
    submit_with, run_with = bytecodes(**OPTIONS)
    steps = {
        "submit": submit,
        "start and end": run,
        "submit with options": submit_with,
        "start and end with options": run_with,
        **bytecodes_of_more(),
    }
    return {name: sum(step.codes.values()) / TRACED for name, step in steps.items()}


@pytest.mark.parametrize("step", MOST)
def test_no_step_of_a_task_takes_more_bytecodes_than_it_did(counted, step):
    """C1: a change that makes every task slower shows here, on a busy machine too."""
    assert MOST[step] / 2 < counted[step] <= MOST[step] * LEEWAY
