"""What one task allocates and what the collector walks for it is known, and stays so."""

import subprocess
import sys
from pathlib import Path

import whywait

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_a_pending_task_is_one_object_and_no_dictionary():
    """C1: the kernel's task, the execution and the handle in one; compiled, the collector does not look at it.

    In a program of its own: attributes that other tests have asked of tasks would leave more room in every task.
    """
    command = [sys.executable, "-c", "from objects import pending_cost; print(*pending_cost(), sep='\\n')"]
    printed = subprocess.run(command, cwd=BENCH, capture_output=True, text=True, check=True).stdout
    tracked, used = printed.splitlines()
    assert tracked == ("{}" if whywait.compiled else "{'Handle': 1.0}")
    assert float(used) < (420 if whywait.compiled else 560 if sys.version_info < (3, 13) else 700)
