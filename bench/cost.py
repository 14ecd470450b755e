"""Measure what one no-op task costs and where: bytecodes, which no noise touches, and CPU time against its peers.

Run it with ``make bench-own``, or ``python bench/cost.py``. Bytecodes are counted by tracing. CPU time is that of the
whole process, the least of several rounds in turn, so that other programs on the machine hardly matter.
"""

from __future__ import annotations

import gc
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import Any, Self

from whywait import Authority

TASKS = 20_000
TRACED = 300
ROUNDS = 7
OPTIONS: dict[str, Any] = {"cpu": 1, "ram": "1MB", "priority": 50}
Row = tuple[float, ...]


def nothing() -> None:
    """Do nothing."""


def make_authority(slots: int) -> Authority:
    """Return an authority with priorities, aging, budget, events and why all on."""
    return Authority(slots=slots, cpu=64, ram="64GB")


class Counted:
    """Counts the bytecodes and the calls of whywait's own functions, in all threads that begin inside."""

    def __init__(self) -> None:
        """Start at zero."""
        self.codes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def _enter(self, frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        if "whywait" not in frame.f_globals.get("__name__", ""):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.calls[frame.f_code.co_name] += 1
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode":
            self.codes[frame.f_code.co_name] += 1
        return self._step

    def __enter__(self) -> Self:
        """Begin to count here, and in threads that are made from now on."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        """Count no more."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type] # that is how it ends


def bytecodes(**options: Any) -> tuple[Counted, Counted]:  # noqa: ANN401 - those of a task
    """Return what submitting, and what running, so many tasks counts."""
    gate, running = threading.Event(), Counted()
    with make_authority(1) as authority:
        with running:
            authority.submit(gate.wait)
        authority.submit(nothing, **options)
        with Counted() as submitting:
            handles = [authority.submit(nothing, **options) for _ in range(TRACED)]
        before = running.codes.copy(), running.calls.copy()
        gate.set()
        handles[-1].result()
        running.codes -= before[0]
        running.calls -= before[1]
    return submitting, running


def bytecodes_of_more() -> dict[str, Counted]:
    """Return what cancelling, disposing of, and running as a chain so many tasks counts."""
    gate, step = threading.Event(), Counted()
    with make_authority(1) as authority:
        with step:
            last = authority.submit(gate.wait)
        handles = [authority.submit(nothing) for _ in range(TRACED)]
        with Counted() as cancel:
            for handle in handles:
                handle.cancel()
        scope = authority.scope("many")
        for _ in range(TRACED):
            scope.submit(nothing)
        with Counted() as dispose:
            scope.dispose()
        for _ in range(TRACED):
            last = authority.submit(nothing, after=[last])
        before = step.codes.copy(), step.calls.copy()
        gate.set()
        last.result()
        step.codes -= before[0]
        step.calls -= before[1]
    return {"cancel": cancel, "end one of many with their scope": dispose, "step of a chain": step}


def show(what: str, counted: Counted) -> None:
    """Print the bytecodes and the calls for one task, and where most of them are."""
    codes, calls = (sum(each.values()) / TRACED for each in (counted.codes, counted.calls))
    most = ", ".join(f"{name} {count / TRACED:.0f}" for name, count in counted.codes.most_common(6))
    print(f"{what}: {codes:.0f} bytecodes, {calls:.0f} calls; most in {most}", flush=True)


def used(fn: Callable[[], object], count: int) -> float:
    """Return the microseconds of CPU time that a call takes, divided by ``count``."""
    gc.collect()
    begin = time.process_time()
    fn()
    return (time.process_time() - begin) / count * 1e6


def whole(make: Callable[[int], Any], workers: int, **options: Any) -> Row:  # noqa: ANN401 - an authority or an executor
    """Return CPU µs and switches of threads for one no-op, from its submission to its result."""
    with make(workers) as pool:
        submit = partial(pool.submit, nothing, **options)
        for future in [submit() for _ in range(100)]:
            future.result()
        before = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used(lambda: [future.result() for future in [submit() for _ in range(TASKS)]], TASKS)
        after = resource.getrusage(resource.RUSAGE_SELF)
    return cpu, (after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw) / TASKS


def parts(make: Callable[[int], Any], **options: Any) -> Row:  # noqa: ANN401 - as above
    """Return CPU µs of a submission, of a run, and of the look at a result, one after the other."""
    gate, futures = threading.Event(), []

    def submit_all() -> None:
        futures.extend([pool.submit(nothing, **options) for _ in range(TASKS)])

    def run_all() -> None:
        gate.set()
        futures[-1].result()

    with make(1) as pool:
        pool.submit(gate.wait)
        return (
            used(submit_all, TASKS),
            used(run_all, TASKS),
            used(lambda: [future.result() for future in futures], TASKS),
        )


def ends(make: Callable[[int], Any]) -> Row:
    """Return CPU µs to cancel one pending task, and for one of many that end at once."""
    gate = threading.Event()
    with make(1) as pool:
        pool.submit(gate.wait)
        futures = [pool.submit(nothing) for _ in range(TASKS)]
        one = used(lambda: [future.cancel() for future in futures], TASKS)
        gate.set()
    gate.clear()
    with make(1) as pool:
        pool.submit(gate.wait)
        where = pool.scope("many") if isinstance(pool, Authority) else pool
        futures = [where.submit(nothing) for _ in range(TASKS)]
        many = used(where.dispose if where is not pool else partial(pool.shutdown, False, cancel_futures=True), TASKS)  # noqa: FBT003 - do not wait
        gate.set()
    return one, many


def pending(count: int) -> Row:
    """Return CPU µs to submit, and to start and end, a task while so many are pending; the later half of them."""
    gate, half = threading.Event(), threading.Event()
    with make_authority(1) as authority:
        authority.submit(gate.wait)
        handles = [authority.submit(nothing) for _ in range(count // 2)]
        submitted = used(lambda: handles.extend([authority.submit(nothing) for _ in range(count // 2)]), count // 2)
        handles[count // 2].add_done_callback(lambda _: half.set())

        def run_half() -> None:
            gate.set()
            half.wait()

        return submitted, used(run_half, count // 2)


def least(measures: dict[str, Callable[[], Row]], rounds: int = ROUNDS) -> dict[str, Row]:
    """Return the least of each figure of each measure, taken in turn."""
    rows: dict[str, list[Row]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            rows[name].append(measure())
    return {name: tuple(map(min, zip(*each, strict=True))) for name, each in rows.items()}


def main() -> None:
    """Print everything."""
    for title, options in (("plain", {}), ("with cpu, ram and priority", OPTIONS)):
        for what, counted in zip(("submit", "start and end"), bytecodes(**options), strict=True):
            show(f"{what}, {title}", counted)
    for what, counted in bytecodes_of_more().items():
        show(what, counted)
    pool, ours = ThreadPoolExecutor, make_authority
    for workers in (1, 2, 4, 8):
        rows = least({
            "pool": partial(whole, pool, workers),
            "ours": partial(whole, ours, workers),
            "options": partial(whole, ours, workers, **OPTIONS),
        })  # fmt: skip
        (theirs, _), (mine, switches), (mine_too, _) = rows.values()
        print(
            f"no-op, {workers} threads: {mine:.2f} µs, with options {mine_too:.2f}, ThreadPoolExecutor {theirs:.2f}: "
            f"{theirs / mine:.2f} and {theirs / mine_too:.2f} times its rate; {switches:.2f} switches a task",
            flush=True,
        )
    rows = least(
        {"pool": partial(parts, pool), "ours": partial(parts, ours), "options": partial(parts, ours, **OPTIONS)}
    )
    for name, row in rows.items():
        print(f"submit, run, result ({name}):", " ".join(f"{each:.2f}" for each in row), "µs", flush=True)
    for name, row in least({"pool": partial(ends, pool), "ours": partial(ends, ours)}).items():
        print(
            f"cancel one, end one of all at once ({name}):", " ".join(f"{each:.2f}" for each in row), "µs", flush=True
        )
    few, many = least({"few": partial(pending, 1_000)}, 50)["few"], pending(1_000_000)
    print(f"1,000,000 pending over 1,000: submit {many[0] / few[0]:.2f}, start and end {many[1] / few[1]:.2f}")


if __name__ == "__main__":
    main()
