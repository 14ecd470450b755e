"""T2, T11: the words of closed sets, and that an outcome is one text wherever it is told."""

import pickle
import time
from enum import StrEnum

import pytest

from whywait import Authority
from whywait.kernel.events import Event, Kind
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState, Wait, Word
from whywait.observe.event_file import read_event_file
from whywait.observe.record import Record

WORDS = [word for words in (Outcome, Cause, Wait, TaskState, ScopeState, Kind) for word in words]


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_a_word_equals_its_text_and_nothing_else(word):
    """T11: outcomes, causes, states and kinds of events; equality and hash agree, whichever side the text is on."""
    text, other = str(word), word.swapcase()
    assert type(text) is str
    assert word == text
    assert text == word
    assert hash(word) == hash(text)
    assert {text: 1}[word] == {word: 1}[text] == 1
    assert word != other
    assert other != word
    assert {word: 1}.get(other) is {other: 1}.get(word) is None
    assert word != 1


def test_words_are_plain_enums_in_the_case_of_their_kind():
    """T11: outcomes and causes in lower case, states and kinds in upper case."""
    for words, is_cased in ((Outcome, str.islower), (Cause, str.islower), (Wait, str.islower)):
        assert all(is_cased(word) for word in words)
    for words in (TaskState, ScopeState, Kind):
        assert all(word.isupper() and word.name == word for word in words)
    for words in (Outcome, Cause, Wait, TaskState, ScopeState, Kind):
        assert issubclass(words, StrEnum)
        assert {"__eq__", "__ne__", "__hash__"}.isdisjoint(vars(words) | vars(Word))
        assert [words(str(word)) for word in words] == list(words)
        assert [pickle.loads(pickle.dumps(word)) is word for word in words] == [True] * len(words)


def test_what_users_look_at_are_words():
    """T11: the state and the outcome of a task, the state of a scope, the kinds of events."""
    with Authority(slots=1) as authority, authority.scope("s") as scope:
        handle = scope.submit(int)
        handle.result()
        assert handle.outcome in {"success", "error"}
        assert handle.outcome != "SUCCESS"
        assert (type(handle.outcome), type(handle.state), type(scope.state)) == (Outcome, TaskState, ScopeState)
        assert {type(event.kind) for event in authority.events()} == {Kind}
        cancelled = scope.submit(int, after=[authority.submit(time.sleep, 30, id="sleeps")])
        cancelled.cancel()
        authority.cancel("sleeps")
        assert type(cancelled.cause) is Cause


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


def test_files_of_earlier_versions_are_read(tmp_path):
    """T11: outcomes of version 0.1 in upper case, in event files and in records, those of 0.2 in lower case."""
    events, record = tmp_path / "events.jsonl", tmp_path / "run.rec"
    with Authority(slots=1, events_file=events, record=record) as authority:
        authority.submit(int, id="fine").result()
        assert authority.submit(divmod, 1, 0, id="bad").exception() is not None
    for file in (events, record):
        text = file.read_text()
        assert '"success"' in text
        file.write_text(text.replace('"success"', '"SUCCESS"').replace('"error"', '"ERROR"'))
    for told in (read_event_file(events).events, Record(record).replay()):
        ends = [dict(event.details)["outcome"] for event in told if event.kind == "TASK_FINISHED"]
        assert ends == ["success", "error"]
        assert all(type(outcome) is Outcome for outcome in ends)
