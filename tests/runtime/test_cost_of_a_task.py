"""What one task allocates and what the collector walks for it is known, and stays so."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from objects import pending_cost


def test_a_pending_task_is_two_objects_and_no_dictionary():
    """C1: the execution, which is the kernel's task, and the handle; nothing is made before it is asked for."""
    cost = pending_cost()
    assert cost.tracked == {"Execution": 1.0, "Handle": 1.0}
    assert cost.bytes < (560 if sys.version_info < (3, 13) else 700)  # since 3.13 an object has room for attributes
