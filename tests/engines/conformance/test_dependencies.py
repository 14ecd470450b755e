"""G: dependencies as their user sees them."""

import pickle

import pytest

from patience import PATIENCE_S
from whywait.errors import ForeignRef, TaskAborted, UnknownDependency, UnknownTask


def ended_by(handle, root):
    """Return whether a task was taken down by the end of another, and says so."""
    error = handle.exception(PATIENCE_S)
    assert isinstance(error, TaskAborted)
    assert root in str(error)
    return (handle.outcome, handle.cause, handle.why().root) == ("aborted", "dependency", root)


def test_a_dependency_that_does_not_exist_is_refused(authority, body):
    """G1: with the nearest name that does."""
    authority.submit(body.value, 1, id="fetch")
    with pytest.raises(UnknownDependency, match="fetch") as caught:
        authority.submit(body.value, 2, id="decode", after=["fetsh"])
    assert caught.value.cause == "unknown_dependency"
    assert authority.submit(body.value, 3, id="decode", after=["fetch"]).result(PATIENCE_S) == 3


def test_what_is_no_dependency_is_refused(authority, body):
    """G1: a dependency is a handle, a ref or an id."""
    with pytest.raises(UnknownTask):
        authority.submit(body.value, after=[42])


def test_handles_refs_and_ids_name_dependencies(authority, body, stage):
    """G1: whichever is at hand; the task is QUEUED until all have succeeded."""
    first = authority.submit(body.hold, stage, "a", "gate", id="first")
    later = [
        authority.submit(body.note, stage, "b", after=[each]) for each in (first, first.ref, "first", "default/first")
    ]
    assert [handle.state for handle in later] == ["QUEUED"] * 4
    assert not stage.has("b")
    stage.mark("gate")
    for handle in later:
        handle.result(PATIENCE_S)
    assert stage.count("b") == 4


def test_a_dependency_that_has_succeeded_counts_as_met(authority, body):
    """G1: by its handle or, where it was named, by its id."""
    first = authority.submit(body.value, 1, id="first")
    first.result(PATIENCE_S)
    assert authority.submit(body.value, 2, after=[first]).result(PATIENCE_S) == 2
    assert authority.submit(body.value, 3, after=["first"]).result(PATIENCE_S) == 3


def test_a_dependency_that_has_failed_ends_the_new_task_at_once(authority, body, stage):
    """G1: as ABORTED/dependency, naming it."""
    first = authority.submit(body.fail, "x", id="first")
    first.exception(PATIENCE_S)
    for dependency in (first, "first"):
        handle = authority.submit(body.note, stage, "b", after=[dependency])
        assert handle.done()
        assert ended_by(handle, "first")
    assert not stage.has("b")


def test_a_long_chain_ends(authority, body):
    """G2: each link passes its result on."""
    handle = authority.submit(body.value, 0)
    for _ in range(60):
        handle = authority.submit(body.add, handle, 1)
    assert handle.result(PATIENCE_S) == 60


def test_dependents_wait_for_the_last_attempt(authority, body, stage):
    """G3, T7: a failure that is retried takes nobody down; dependents follow to the final outcome."""
    first = authority.submit(body.flaky, stage, "a", 2, retry=2, id="first")
    by_handle = authority.submit(body.add, first, 10)
    by_id = authority.submit(body.value, 7, after=["first"])
    assert (by_handle.result(PATIENCE_S), by_id.result(PATIENCE_S)) == (13, 7)
    hopeless = authority.submit(body.flaky, stage, "b", 9, retry=1, id="hopeless")
    assert ended_by(authority.submit(body.value, hopeless), "hopeless")
    assert stage.count("b") == 2


def test_handles_as_arguments_are_replaced_by_their_results(authority, body, stage):
    """G4: positional and keyword; they are dependencies without being named as such."""
    first = authority.submit(body.hold, stage, "a", "gate")
    one, two, three = (authority.submit(body.value, number, after=[first]) for number in (1, 2, 3))
    total = authority.submit(body.add, one, two, kwargs={"third": three})
    assert total.state == "QUEUED"
    stage.mark("gate")
    assert total.result(PATIENCE_S) == 6


def test_handles_inside_containers_are_replaced_by_their_results(authority, body, stage):
    """G4: in lists, tuples, dicts and what is nested in them; each is a dependency."""
    first = authority.submit(body.hold, stage, "a", "gate")
    one, two, three = (authority.submit(body.value, number, after=[first]) for number in (1, 2, 3))
    nested = authority.submit(body.value, {"list": [one, {"deep": (two, 7)}], "plain": [4]})
    by_keyword = authority.submit(body.value, kwargs={"given": [three, three]})
    assert (nested.state, by_keyword.state) == ("QUEUED", "QUEUED")
    stage.mark("gate")
    assert nested.result(PATIENCE_S) == {"list": [1, {"deep": (2, 7)}], "plain": [4]}
    assert by_keyword.result(PATIENCE_S) == [3, 3]


def test_a_handle_where_it_is_not_looked_for_is_not_pickled(authority, body):
    """G4: it stays a handle in this process, and going to another one is refused with what to do."""
    handle = authority.submit(body.value, 1)
    with pytest.raises(TypeError, match=r"cannot be pickled: give it to submit\(\) as an argument"):
        pickle.dumps([[[[handle]]]])


def test_a_handle_of_another_authority_is_refused(authority, make, body):
    """G4, T8: as an argument and as a dependency; nothing stays behind."""
    foreign = make().submit(body.value, 1)
    with pytest.raises(ForeignRef):
        authority.submit(body.add, foreign, 1)
    with pytest.raises(ForeignRef):
        authority.submit(body.value, after=[foreign])
    assert authority.stats()["submitted"] == 0
