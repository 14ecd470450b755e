"""Measure all contestants in turn, round after round, then write the results and the page.

``python bench/run.py`` (or ``make bench``) takes the better part of an hour; ``--quick`` two minutes. It can be stopped
and started again: what is measured is kept, as long as the code is the same. ``--fresh`` starts over; ``--page`` only
writes the page; ``--only patterns`` measures one kind of work. ``--newer`` (or ``make bench-newer``), under a newer
Python than the page is about, measures whywait and the standard library alone, for a section that ``--page`` adds;
on a free-threaded Python too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from machine import TOP, facts, load, source_digest, version_of_python
from plan import LIMIT_S, QUICK_LIMIT_S, Cell, cells, cells_of_newer
from task_bodies import compute, kernel

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE / "results"
QUICK_S: Final = 90  # after which no measurement of a further round begins
_CALIBRATION_BYTES: Final = 4 << 20
_CALIBRATION_STEPS: Final = 2_000


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, few peers: two minutes")
    parser.add_argument("--rounds", type=int, help="how many (5; quick: up to 3, as two minutes allow)")
    parser.add_argument("--only", action="append", help="a kind of work; may be repeated")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--newer", action="store_true", help="a newer Python: beside the standard library alone")
    parser.add_argument("--page", action="store_true", help="write the page from what there is")
    arguments = parser.parse_args()
    path = RESULTS / ("quick.json" if arguments.quick else "full.json")
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    if arguments.newer:
        path = RESULTS / f"python-{version_of_python()}.json"
        results = _begin(path, fresh=arguments.fresh)
        _measure(results, path, rounds, list(cells_of_newer(results["steps_per_us"])), quick=False)
        return
    if not arguments.page:
        results = _begin(path, fresh=arguments.fresh or arguments.quick)
        plan = cells(arguments.quick, results["bytes_per_us"])
        only = [each for each in plan if arguments.only is None or each.work in arguments.only]
        _measure(results, path, rounds, only, quick=arguments.quick)
    from page import write_page  # noqa: PLC0415 - it draws, which a newer Python need not be able to

    written = write_page(json.loads(path.read_text(encoding="utf-8")), TOP, quick=arguments.quick)
    print(f"wrote {written.relative_to(TOP)}")


def _begin(path: Path, *, fresh: bool) -> dict[str, Any]:
    """Return the results so far, or new ones if the code has changed."""
    digest = source_digest()
    if path.exists() and not fresh:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if results["digest"] == digest:
            print(f"going on with {path.relative_to(TOP)}")
            return results
        print("the code has changed: starting over")
    return {
        "digest": digest,
        "machine": facts(),
        "bytes_per_us": _per_us(kernel, _CALIBRATION_BYTES),
        "steps_per_us": _per_us(compute, _CALIBRATION_STEPS),
        "load": [],
        "cells": [],
    }


def _per_us(body: Callable[[int], None], size: int) -> float:
    """Return how much of its argument a body does in a microsecond, on one thread alone."""
    body(size)
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        body(size)
        times.append(time.perf_counter() - begin)
    return size / min(times) / 1e6


def _measure(results: dict[str, Any], path: Path, rounds: int, plan: Sequence[Cell], *, quick: bool) -> None:
    """Measure what the plan says, round after round."""
    begin = time.monotonic()
    for number in range(rounds):
        order = plan if number % 2 == 0 else plan[::-1]  # nobody always comes after the same neighbour
        for count, cell in enumerate(order, start=1):
            entry = _entry(results, cell)
            if len(entry["rounds"]) > number:
                continue
            if quick and number and time.monotonic() - begin > QUICK_S:
                return
            what = f"{cell.work} {cell.contestant}"
            print(
                f"[{time.monotonic() - begin:5.0f} s] round {number + 1}/{rounds} {count}/{len(order)} {what}", end=""
            )
            before = time.monotonic()
            result = _run(cell, QUICK_LIMIT_S if quick else LIMIT_S)
            print(f" {time.monotonic() - before:.1f} s {result.get('error', '')}", flush=True)
            entry["rounds"].append(result)
            results["load"].append(load())
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _entry(results: dict[str, Any], cell: Cell) -> dict[str, Any]:
    for entry in results["cells"]:
        if (entry["work"], entry["contestant"], entry["params"]) == (cell.work, cell.contestant, cell.params):
            return entry
    entry = {"work": cell.work, "contestant": cell.contestant, "params": cell.params, "rounds": []}
    results["cells"].append(entry)
    return entry


def _run(cell: Cell, limit_s: float) -> dict[str, Any]:
    """Run a measurement in a process of its own; with all that it started, it ends in time."""
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])  # of worker processes, too
    what = json.dumps({"work": cell.work, "contestant": cell.contestant, "params": cell.params})
    with tempfile.TemporaryDirectory(prefix="bench", ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, str(HERE / "cell.py"), what],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": scratch},
        )
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {limit_s} s"}
        finally:
            if process.returncode is None:  # too slow, or we are interrupted
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return {"error": f"ended without a result: {errors.strip()[-200:]}"}
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return result


if __name__ == "__main__":
    main()
