"""``map``: many calls of one function as few tasks, and their results in the order of the calls.

``Scope.map`` and ``Executor.map`` both cut their calls with :func:`cut` into chunks (``task/chunk.py``) and hand out
results with :func:`in_order`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from whywait.engines.registry import gives_coroutines
from whywait.errors import ConfigError
from whywait.runtime.handle import Handle
from whywait.runtime.submission import each_dependency
from whywait.task.chunk import Awaited, Chunk, CoroutineChunk

T = TypeVar("T")
S = TypeVar("S")


def cut(calls: Iterator[tuple[Any, ...]], chunksize: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the calls in runs of ``chunksize``; the last run may be shorter."""
    return iter(lambda: list(itertools.islice(calls, chunksize)), [])


def in_order(
    tasks: deque[S], more: Iterator[S], results_of: Callable[[S], Iterator[T]], cancel: Callable[[Iterable[S]], object]
) -> Iterator[T]:
    """Yield the results of tasks in order; for each task that is taken, begin one ``more``.

    When the iterator ends early, by an error or because it is dropped, the tasks that are left are cancelled.
    """
    try:
        while tasks:
            tasks.extend(itertools.islice(more, 1))
            yield from results_of(tasks.popleft())
    finally:
        cancel(tasks)


def hand_out(results: list[T]) -> Iterator[T]:
    """Yield each of the results and keep no reference to it."""
    results.reverse()
    while results:
        yield results.pop()


def map_calls(
    submit: Callable[..., Handle[Any]],
    fn: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    chunksize: int,
    options: Mapping[str, Any],
) -> Iterator[Any]:
    """Do what ``Scope.map`` says."""
    if not callable(fn):
        raise ConfigError(f"map needs a function to call, not {fn!r}")
    if not iterables:
        raise ConfigError("map needs at least one iterable of arguments")
    if chunksize.__class__ is not int or chunksize < 1:
        raise ConfigError(f"chunksize {chunksize!r} is not allowed: use an int of at least 1")
    if options.get("id") is not None:
        raise ConfigError(f"task id {options['id']!r} is not allowed: map makes many tasks, and an id names one")
    given: dict[str, Any] = dict(options)
    for name in ("after", "after_ended"):
        if name in given:
            given[name] = tuple(each_dependency(given[name]))  # an iterator would be used up by the first task
    calls = zip(*iterables, strict=False)
    tasks: deque[Handle[Any]] = deque()
    try:
        if chunksize == 1:
            tasks.extend(submit(fn, *call, **given) for call in calls)
        else:
            kind = CoroutineChunk if gives_coroutines(fn) else Chunk
            tasks.extend(_submit(submit, kind(fn, chunk), given) for chunk in cut(calls, chunksize))
    except BaseException:
        _cancel_pending(tasks)
        raise
    return in_order(tasks, iter(()), _one_result if chunksize == 1 else _results, _cancel_pending)


def _submit(submit: Callable[..., Handle[Any]], chunk: Chunk[Any], options: dict[str, Any]) -> Handle[Any]:
    awaited = [each for call in chunk.calls for each in call if isinstance(each, Handle)]
    if awaited:
        chunk.calls = [tuple([Awaited if isinstance(each, Handle) else each for each in call]) for call in chunk.calls]
    return submit(chunk, *awaited, **options)


def _one_result(handle: Handle[Any]) -> Iterator[Any]:
    results = [_wait(handle)]
    del handle
    yield from hand_out(results)


def _results(handle: Handle[Any]) -> Iterator[Any]:
    results = _wait(handle)
    del handle
    yield from hand_out(results)


def _wait(handle: Handle[Any]) -> Any:
    """Return the result of a task; one that has not started is cancelled if the wait is broken off."""
    try:
        return handle.result()
    finally:
        if not handle.done():
            _cancel_pending([handle])
        del handle  # it is on the traceback of the error that it holds


def _cancel_pending(handles: Iterable[Handle[Any]]) -> None:
    """Cancel those of the tasks that have not started."""
    executions: list[Any] = [handle for handle in handles if not handle.done()]
    if executions:
        executions[0].core.cancel_pending(executions)
