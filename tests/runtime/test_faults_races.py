"""Cancel against finish: whichever line either is at when the other comes, the task has one end and one only."""

import pytest

from cores import interpreted
from interleave import cancel, dispose, meet

FAR = 1_000_000  # a line that is never reached


@interpreted
@pytest.mark.parametrize(
    ("engine", "act", "fails"),
    [("thread", cancel, False), ("thread", cancel, True), ("thread", dispose, False), ("simple", cancel, False)],
)
def test_an_end_and_a_cancel_meet_at_every_line(engine, act, fails):
    """X3, T2: the one who is held anywhere finds, when it goes on, what the other has done, and leaves it so."""
    outcomes = set()
    for index, comes_first in enumerate(("finisher", "actor")):
        for line in range(FAR):
            lines = (FAR, line) if index else (line, FAR)
            held, outcome = meet(engine, act, *lines, comes_first=comes_first, fails=fails)
            outcomes.add(outcome)
            if held[index] is None:
                assert line > 5, "there was nothing to hold"
                break
    assert outcomes == {"aborted", "error" if fails else "success"}
