"""W3: what a running task puts out, and its readers."""

import asyncio
import itertools
import threading

import pytest
from bodies import Oops
from inner_bodies import LIMIT

from patience import PATIENCE_S, until
from whywait.errors import ConfigError, TaskAborted


def kinds(authority, *wanted):
    return [event.kind for event in authority.events() if event.kind in wanted]


def test_chunks_arrive_in_order(authority, inner):
    """W3: many more than are kept at once; the result is untouched by it."""
    handle = authority.submit(inner.emits_many, 200)
    assert list(handle.stream()) == list(range(200))
    assert handle.result(PATIENCE_S) is None


def test_chunks_arrive_in_a_coroutine(authority, inner):
    """W3: `async for`, while the loop goes on."""

    async def main():
        async with authority:
            handle = authority.submit(inner.emits_many, 200)
            return [chunk async for chunk in handle.stream()]

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == list(range(200))


def test_the_producer_waits_for_the_slowest_reader(authority, inner, stage):
    """W3: never more than `limit` chunks ahead of the slowest reader, though others read faster."""
    handle = authority.submit(inner.emits, stage, 30)
    slow, fast = handle.stream(), handle.stream()
    reader = threading.Thread(target=lambda: list(fast))
    reader.start()
    for number, chunk in enumerate(slow):
        assert chunk == number
        assert stage.count("emitted") <= number + 1 + LIMIT
    reader.join(PATIENCE_S)
    assert handle.result(PATIENCE_S) == 30


def test_the_producer_waits_for_a_first_reader(authority, inner, stage):
    """W3: what no reader has read yet is kept, and holds the producer up."""
    handle = authority.submit(inner.emits, stage, 30)
    stage.wait("emitted", LIMIT)
    assert handle.state == "RUNNING"
    assert stage.count("emitted") == LIMIT
    assert list(handle.stream()) == list(range(30))


def test_who_joins_later_reads_what_is_still_there(authority, inner, stage):
    """W3: from the oldest chunk that is kept, or from now; `missed` counts what has gone."""
    handle = authority.submit(inner.emits, stage, 8, "gate")
    first = handle.stream()
    assert list(itertools.islice(first, 4)) == [0, 1, 2, 3]
    later, new = handle.stream(), handle.stream(past=False)
    stage.mark("gate")
    assert (list(later), later.missed) == (list(range(8)), 0)
    assert (list(new), new.missed) == ([4, 5, 6, 7], 4)
    assert list(first) == [4, 5, 6, 7]
    assert list(handle.stream()) == [4, 5, 6, 7]  # after the end: what is kept
    assert handle.stream().missed == 4


def test_a_reader_that_leaves_holds_nobody_up(authority, inner, stage):
    """W3: closed, or only forgotten."""
    handle = authority.submit(inner.emits, stage, 30)
    for chunk in handle.stream():
        assert chunk == 0
        break
    closed = handle.stream()
    closed.close()
    with handle.stream(past=False) as reader:
        assert next(reader) >= 0
    for _ in handle.stream():
        pass
    assert handle.result(PATIENCE_S) == 30


def test_streams_have_names(authority, inner):
    """W3: each has its own chunks; one that no body writes to ends with the task."""
    handle = authority.submit(inner.emits_named)
    assert list(handle.stream("numbers")) == [0, 1, 2]
    assert list(handle.stream("words")) == ["0", "1", "2"]
    assert list(handle.stream()) == []
    with pytest.raises(ConfigError, match="stream name ''"):
        handle.stream("")


def test_a_failure_reaches_the_reader_after_the_chunks(authority, inner, stage):
    """W3: what came before it is read first."""
    reader = authority.submit(inner.emits_and_fails, stage, 1).stream()
    assert next(reader) == 1
    with pytest.raises(Oops, match="attempt 1"):
        next(reader)


def test_an_abort_reaches_the_reader(authority, inner, stage):
    """W3, X3: an error, never a silent end; also while the reader waits."""
    handle = authority.submit(inner.emits, stage, 4, "never")
    reader = handle.stream()
    assert [next(reader), next(reader)] == [0, 1]
    threading.Timer(0.01, handle.cancel).start()
    with pytest.raises(TaskAborted, match="cancelled"):
        next(reader)


def test_disposing_aborts_the_streams(authority, inner, stage):
    """O4, W3: the reader sees why."""
    scope = authority.scope("s")
    handle = scope.submit(inner.emits, stage, 4, "never")
    reader = handle.stream()
    assert [next(reader), next(reader)] == [0, 1]
    scope.dispose()
    with pytest.raises(TaskAborted, match="scope_disposed"):
        next(reader)


def test_a_producer_that_waits_can_be_cancelled(authority, inner, stage):
    """W3, X3: a full stream is no place to hide from an abort."""
    handle = authority.submit(inner.emits, stage, 30)
    stage.wait("emitted", LIMIT)
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)


def test_a_producer_that_waits_can_be_paused(make, inner, stage):
    """W3, X1: waiting for a reader is as good as a checkpoint."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(inner.emits, stage, 30)
    stage.wait("emitted", LIMIT)
    handle.pause()
    assert handle.state == "PAUSED"
    handle.resume()
    assert list(handle.stream()) == list(range(30))


def test_a_task_that_is_tried_again_goes_on_in_its_stream(authority, inner, stage):
    """W3, T7: readers see all attempts, and the final outcome."""
    handle = authority.submit(inner.emits_and_fails, stage, 2, retry=2)
    assert list(handle.stream()) == [1, 2, 3]
    assert handle.outcome == "success"


def test_a_stream_shows_in_the_events(authority, inner):
    """V3: opened and closed once, with the number of chunks."""
    handle = authority.submit(inner.emits_many, 3)
    assert list(handle.stream()) == [0, 1, 2]
    until(lambda: kinds(authority, "STREAM_CLOSED"))
    assert kinds(authority, "STREAM_OPENED", "STREAM_CLOSED") == ["STREAM_OPENED", "STREAM_CLOSED"]
    closed = next(event for event in authority.events() if event.kind == "STREAM_CLOSED")
    assert closed.details == (("stream", "main"), ("chunks", 3))


@pytest.mark.parametrize("count", [3, 200])
def test_streams_are_closed_before_their_scope_is_disposed(authority, inner, count):
    """O4: whether the task has ended by itself or is aborted in the midst of a full stream."""
    scope = authority.scope("s")
    handle = scope.submit(inner.emits_many, count)
    reader = handle.stream()
    assert next(reader) == 0
    if count == 3:
        handle.result(PATIENCE_S)
    scope.dispose()
    told = [event.kind for event in authority.events() if event.scope == "s"]
    assert told.count("STREAM_CLOSED") == 1
    assert told[-1] == "SCOPE_DISPOSED"
