"""T, G, X: `Scope.map` and `Authority.map`: many calls as few tasks, results in the order of the calls."""

import pytest
from bodies import Oops

from patience import PATIENCE_S, until

SIZES = pytest.mark.parametrize("chunksize", [1, 2, 100])


@SIZES
def test_map_yields_results_in_order_and_ends_with_the_shortest(wide, body, chunksize):
    """T5: `Authority.map` takes one item of each iterable for a call."""
    assert list(wide.map(body.add, range(7), iter([10, 20, 30, 40, 50]), chunksize=chunksize)) == [10, 21, 32, 43, 54]
    assert list(wide.map(body.value, [], chunksize=chunksize)) == []


@pytest.mark.parametrize(("chunksize", "tasks"), [(1, 10), (4, 3), (10, 1)])
def test_a_chunk_is_one_task(wide, body, chunksize, tasks):
    """T5: `Scope.map` makes one task for each chunk of calls."""
    with wide.scope("s") as scope:
        assert list(scope.map(body.value, range(10), chunksize=chunksize)) == list(range(10))
        assert wide.stats()["submitted"] == tasks


@SIZES
def test_the_options_of_map_hold_for_each_task(make, body, chunksize):
    """T7, B1: `kwargs` reach each call, a demand is that of each task, and an iterator of `after` that of all."""
    authority = make(cpu=2)
    first = authority.submit(body.value, 1)
    results = authority.map(
        body.add, range(4), chunksize=chunksize, kwargs={"third": 100}, cpu=2, after=iter([first]), priority="high"
    )
    assert list(results) == [100, 101, 102, 103]
    assert first.done()


@SIZES
def test_handles_among_the_items_are_replaced_by_their_results(wide, body, chunksize):
    """G4: `map` takes them as `submit` does, whatever the `chunksize`."""
    handles = [wide.submit(body.value, number) for number in range(3)]
    assert list(wide.map(body.add, [*handles, 7], [1, handles[2], 3, 4], chunksize=chunksize)) == [1, 3, 5, 11]


def test_functions_that_only_the_test_knows_are_mapped(wide, promises):
    """T3: a chunk reaches other processes with a function that travels by value."""
    offset = 5

    def plus(number):
        return number + offset

    async def plus_async(number):
        return number + offset

    fn = plus if promises.form == "plain" else plus_async
    assert list(wide.map(fn, range(5), chunksize=2)) == [5, 6, 7, 8, 9]


def test_a_call_that_raises_fails_its_chunk(authority, body):
    """T2: `map` yields the results of the chunks before it, then raises what the call raised."""
    errors = [ValueError("second"), None]
    results = authority.map(body.add, [1, 2, 3, "x", 5, 6], [1] * 6, chunksize=2)
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(TypeError):
        next(results)
    assert list(results) == []
    with pytest.raises(ValueError, match="second"):
        next(authority.map(body.raise_it, errors))


@SIZES
def test_an_error_cancels_tasks_that_have_not_started(authority, body, stage, chunksize):
    """X3: `map` leaves nothing behind that nothing will look at; a running task goes on."""
    stages = [None] * chunksize + [stage] * 2 * chunksize  # the first chunk raises, the second one waits
    names = [name for name in "abc" for _ in range(chunksize)]
    results = authority.map(body.hold, stages, names, ["gate"] * 3 * chunksize, chunksize=chunksize)
    stage.wait("b")
    with pytest.raises(AttributeError):
        next(results)
    assert authority.stats()["queued"] == 0
    stage.mark("gate")
    stage.wait("b.left", chunksize)
    until(lambda: authority.stats()["active"] == 0)
    ended = authority.stats()["by_outcome"]
    assert (ended["error"], ended["success"], ended["aborted"]) == (1, 1, 1)
    assert not stage.has("c")


def test_closing_the_iterator_cancels_what_has_not_started_and_nothing_else(authority, body, stage):
    """X3: a running task goes on to its end, as with `concurrent.futures`."""
    stage.mark("open")
    results = authority.map(body.hold, [stage] * 3, "abc", ["open", "gate", "gate"])
    assert next(results) == "a"
    stage.wait("b")
    results.close()
    stage.mark("gate")
    stage.wait("b.left")
    until(lambda: authority.stats()["active"] == 0)
    ended = authority.stats()["by_outcome"]
    assert (ended["error"], ended["success"], ended["aborted"]) == (0, 2, 1)
    assert not stage.has("c")


@SIZES
def test_an_iterable_that_raises_leaves_no_task_waiting(authority, body, stage, chunksize):
    """T3: `map` raises it at the call and cancels what has not started."""

    def broken():
        yield from range(2 * chunksize)
        raise Oops("no more")

    gate = authority.submit(body.hold, stage, "a", "gate")
    with pytest.raises(Oops, match="no more"):
        authority.map(body.value, broken(), chunksize=chunksize)
    assert authority.stats()["queued"] == 0
    stage.mark("gate")
    assert gate.result(PATIENCE_S) == "a"
