"""Queues for one computer side by side: jobs a second, and the time from a freed place to the next command.

``make bench-machine`` runs it. Four works, each with every tool that can do it, in rounds that alternate, so that
whatever else the computer does hits all of them:

* **one by one**: a shell loop adds N jobs, each by a process of the tool; from the first to the end of the last job;
* **many**: the same jobs by the tool's own way for many, where it has one;
* **waiting**: N jobs that wait behind others; from the moment at which those end to the end of the last job;
* **next**: from the last instruction of one job to the first of the next, where one runs at a time.

A job is ``stamp``, a small static program that reads the clock and writes it into a fifo. Prints a table, and writes
all figures to ``bench/results/queues.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from tools import QUEUES, Queue, Slurm, version_of

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
RECORD = struct.Struct("=3q")  # what stamp writes: number, first instruction, last instruction
LONGEST_S = 300


class Fifo:
    """Where jobs tell when they ran."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR)

    def take(self, count: int) -> list[tuple[int, int, int]]:
        """Return the records of so many jobs, as they come."""
        data = b""
        while len(data) < count * RECORD.size:
            data += os.read(self._fd, 65536)
        return [RECORD.unpack_from(data, at) for at in range(0, len(data), RECORD.size)]


class Bench:
    """One tool in one folder, for one measurement."""

    def __init__(self, queue: Queue, stamp: Path, fifo: Fifo) -> None:
        self.queue = queue
        self.stamp = stamp
        self.fifo = fifo

    def job(self, number: int, hold_ms: int = 0) -> str:
        """Return the words of a job that runs for so long."""
        return f"{self.stamp} {self.fifo.path} {number}{f' {hold_ms}' if hold_ms else ''}"

    def add(self, count: int, hold_ms: int = 0) -> subprocess.Popen[bytes]:
        """Start a shell loop that adds so many jobs, each by a process of the tool."""
        loop = f"i=0; while [ $i -lt {count} ]; do job='{self.job(0, hold_ms)}'; {self.queue.add()}\ni=$((i+1)); done"
        return self._start(loop)

    def add_many(self, count: int) -> subprocess.Popen[bytes]:
        """Start the tool's own way to add many."""
        command = self.queue.add_many()
        assert command is not None, "asked before"
        jobs = self.queue.folder / "list"
        jobs.write_text("".join(f"{self.job(number)}\n" for number in range(count)), encoding="utf-8")
        return self._start(f"{{ {command}\n}} < {jobs}")

    def _start(self, script: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["sh", "-c", script], cwd=self.queue.folder, env=self.queue.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @contextmanager
    def held(self, slots: int) -> Iterator[None]:
        """Have all places taken by jobs that end with the block."""
        go = self.queue.folder / "go"
        ready = [self.queue.folder / f"ready{number}" for number in range(slots)]
        script = self.queue.folder / "hold.sh"
        script.write_text('#!/bin/sh\ntouch "$1"\nwhile [ ! -e "$2" ]; do sleep 0.005; done\n', encoding="utf-8")
        script.chmod(0o755)
        for path in ready:
            self.queue.run(self.queue.add(), job=f"{script} {path} {go}")
        _until(lambda: all(path.exists() for path in ready), "the places being taken")
        yield
        go.touch()


def one_by_one(bench: Bench, count: int) -> float:
    """Jobs a second, each added by a process of its own."""
    began = time.monotonic_ns()
    adding = bench.add(count)
    last = max(end for _, _, end in bench.fifo.take(count))
    adding.wait()
    return count / (last - began) * 1e9


def many(bench: Bench, count: int) -> float:
    """Jobs a second, added in the tool's way for many."""
    began = time.monotonic_ns()
    adding = bench.add_many(count)
    last = max(end for _, _, end in bench.fifo.take(count))
    adding.wait()
    return count / (last - began) * 1e9


def waiting(bench: Bench, count: int, slots: int) -> float:
    """Jobs a second, all of which wait already."""
    with bench.held(slots):
        (bench.add_many(count) if bench.queue.add_many() else bench.add(count)).wait()
        _settle(bench, count)
        began = time.monotonic_ns()
    return count / (max(end for _, _, end in bench.fifo.take(count)) - began) * 1e9


def following(bench: Bench, count: int) -> list[float]:
    """Milliseconds from the last instruction of a job to the first of the next."""
    with bench.held(1):
        bench.add(count + 1, 20).wait()
        _settle(bench, count)
    records = sorted((first, last) for _, first, last in bench.fifo.take(count + 1))
    return [(after[0] - before[1]) / 1e6 for before, after in pairwise(records)]


def _settle(bench: Bench, count: int) -> None:
    """Give clients that were left in the background the time to ask."""
    if bench.queue.name == "whywait do":
        _until(lambda: _waiting(bench.queue) >= count, "all clients waiting")


def _waiting(queue: Queue) -> int:
    done = subprocess.run(["whywait", "status", "--json"], env=queue.env, capture_output=True, check=True)
    return int(json.loads(done.stdout)["waiting_total"])


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} took too long"
        time.sleep(0.01)


class Works:
    """What is measured, of which size, and the figures."""

    def __init__(self, stamp: Path, folder: Path, jobs: int, slow_jobs: int, handovers: int) -> None:
        self._stamp = stamp
        self._folder = folder
        self._jobs = jobs
        self._slow_jobs = slow_jobs  # for tools that look at their queue once a second
        self._handovers = handovers
        self._number = 0
        self.figures: dict[str, dict[str, list[float]]] = {}

    def round(self, kind: type[Queue], slots: int) -> None:
        """Measure all works of one tool once."""
        count = self._slow_jobs if kind.keeps == "nowhere" or kind is Slurm else self._jobs
        slots = slots if kind.can_have_slots else 1
        if self._can_add(kind):
            self._measure(kind, "one by one", slots, lambda bench: [one_by_one(bench, count)])
            self._measure(kind, "waiting", slots, lambda bench: [waiting(bench, count, slots)])
            handovers = min(self._handovers, 5 if kind is Slurm else self._handovers)
            self._measure(kind, "next", 1, lambda bench: following(bench, handovers))
        if kind.add_many is not Queue.add_many and kind.name != "whywait do":
            most = self._jobs if kind is not Slurm else count
            self._measure(kind, "many", slots, lambda bench: [many(bench, most)])

    @staticmethod
    def _can_add(kind: type[Queue]) -> bool:
        return kind.name != "GNU parallel"

    def _measure(self, kind: type[Queue], work: str, slots: int, measure: Callable[[Bench], list[float]]) -> None:
        if work in {"waiting", "next"} and kind.name == "GNU parallel: sem":
            return  # the shell loop itself waits: there is no queue behind it
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        queue = kind(folder)
        queue.open(slots)
        try:
            found = measure(Bench(queue, self._stamp, Fifo(folder / "fifo")))
        finally:
            queue.close()
        self.figures.setdefault(kind.name, {}).setdefault(work, []).extend(found)
        unit = "ms" if work == "next" else "jobs/s"
        print(f"  {kind.name:<20} {work:<12} {statistics.median(found):10.2f} {unit}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--slow-jobs", type=int, default=20)
    parser.add_argument("--handovers", type=int, default=30)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--only", action="append", help="a tool by the beginning of its name; repeat")
    parser.add_argument("--no-page", action="store_true", help="do not write the page")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    chosen = [kind for kind in QUEUES if not options.only or kind.name.startswith(tuple(options.only))]
    with tempfile.TemporaryDirectory(prefix="whywait-queues-") as name:
        folder = Path(name)
        stamp = folder / "stamp"
        subprocess.run(["cc", "-O2", "-static", "-o", stamp, HERE / "stamp.c"], check=True)
        works = Works(stamp, folder, options.jobs, options.slow_jobs, options.handovers)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            for kind in chosen:
                works.round(kind, options.slots)
    report = {
        "facts": {
            "system": f"{platform.system()} {platform.release()}",
            "cores": os.cpu_count(),
            "slots": options.slots,
        },
        "versions": {kind.name: version_of(kind) for kind in QUEUES},
        "keeps": {kind.name: kind.keeps for kind in QUEUES},
        "figures": works.figures,
    }
    print(table(report))
    if not options.no_page and not options.only:
        results = TOP / "bench" / "results"
        (results / "queues.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print("figures are in bench/results/queues.json")


def table(report: dict[str, Any]) -> str:
    """Return the medians as a table in Markdown."""
    works = ("one by one", "many", "waiting", "next")
    lines = [
        "| | queue kept | one by one, jobs/s | many, jobs/s | waiting, jobs/s | next command after, ms |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, found in report["figures"].items():
        cells = [f"{statistics.median(found[work]):.3g}" if work in found else "-" for work in works]
        title = f"{name} {report['versions'].get(name, '')}".strip()
        lines.append(f"| {title} | {report['keeps'][name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
