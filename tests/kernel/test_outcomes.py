"""T2: an outcome is one text wherever it is told."""

import json

import pytest

from whywait import Authority
from whywait.kernel.events import Event
from whywait.kernel.state import Outcome


def test_an_outcome_is_text_in_lower_case():
    """T2: in messages, in JSON, as a key."""
    assert (str(Outcome.SUCCESS), f"{Outcome.ABORTED}", repr(Outcome.ERROR)) == ("success", "aborted", "'error'")
    assert json.dumps({Outcome.TIMEOUT: Outcome.REJECTED}) == '{"timeout": "rejected"}'
    assert {Outcome.SUCCESS: 1}["success"] == 1


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_equals_both_spellings(outcome):
    """T2: programs written for version 0.1 compare with upper case."""
    assert outcome == outcome.value
    assert outcome == outcome.value.upper()
    assert outcome.value.upper() == outcome
    assert not outcome != outcome.value.upper()  # noqa: SIM202 - `!=` is what is tried
    assert outcome != "cancelled"
    assert outcome != 1
    assert Outcome(outcome.value.upper()) is Outcome(outcome.value) is outcome


def test_an_unknown_outcome_is_refused():
    """T2: there are five."""
    for text in ("cancelled", "FAILED", "Success", 3):
        with pytest.raises(ValueError, match="is not a valid Outcome"):
            Outcome(text)


def test_all_surfaces_tell_the_same_word():
    """T2, V4: handle, why, stats, events, report and files; an event of version 0.1 is read as today's."""
    with Authority(slots=1) as authority:
        handle = authority.submit(int, id="one")
        handle.result()
        end = next(event for event in authority.events() if event.kind == "TASK_FINISHED")
        told = end.to_dict()
        words = [
            handle.outcome,
            handle.why().to_dict()["outcome"],
            told["details"]["outcome"],
            *(key for key, count in authority.stats()["by_outcome"].items() if count),
            *(key for key, count in authority.report().to_dict()["outcomes"].items() if count),
        ]
    assert list(map(str, words)) == ["success"] * 5
    told["details"]["outcome"] = "SUCCESS"
    assert Event.from_dict(told) == end
    assert dict(Event.from_dict(told).details)["outcome"] is Outcome.SUCCESS
