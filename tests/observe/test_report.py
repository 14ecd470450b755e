"""The readable report: what it says, and that it fits whatever the workload is called and does."""

from pathlib import Path
from unicodedata import east_asian_width

import pytest

from whywait.observe.report_text import WIDTH, render, render_side_by_side
from whywait.simulation.simulation import Simulation
from whywait.simulation.workload import Workload

EXAMPLE = Path(__file__).parents[2] / "examples" / "render-farm.json"


def width(line):
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in line)


def task(id, at_ms=0, duration_ms=1000, **fields):
    return {"id": id, "at_ms": at_ms, "duration_ms": duration_ms, **fields}


def summarise(*tasks, ops=(), periodics=(), **config):
    data = {"config": config, "tasks": list(tasks), "ops": list(ops), "periodics": list(periodics)}
    return Simulation(data).run().summary


def test_a_small_run_reads_well():
    """V2, V4, V7: the whole text, as a colleague gets it."""
    summary = summarise(
        task("first", 0, 10_000),
        task("low", 0, 10_000, priority="low", ram="4GB"),
        task("high", 5_000, 20_000, priority="high"),
        task("broken", 5_000, 500, priority="high", outcome="error", retry=1),
        task("after-broken", 5_000, 500, after=["broken"]),
        task("hasty", 6_000, 500, max_wait_ms=1_000),
        task("monster", 0, 500, cpu=64),
        slots=1,
        cpu=8,
        ram="8GB",
        starvation_timeout_ms=15_000,
    )
    assert (
        render(summary, "A small farm")
        == """\
A small farm
  aging +10 every 5.0 s, cap 99 · 1 slot · greedy backfill

  Makespan   41.0 s
  Tasks      7 tasks, started 5 times
  Outcome    3 success, 1 error, 1 aborted, 2 rejected

Utilisation                                     mean    peak   limit
  slots      ████████████████████████ 100%         1       1       1
  cpu        ························   0%         0       0       8
  ram        ██▉·····················  12%  975.6 MB  4.0 GB  8.0 GB

Wait once ready  starts     p50     p90     p99     max
  all                 5  10.0 s  30.5 s  30.5 s  30.5 s
  80 high             3  10.0 s  25.0 s  25.0 s  25.0 s
  50 normal           1    0 ms    0 ms    0 ms    0 ms
  20 low              1  30.5 s  30.5 s  30.5 s  30.5 s

Where the waiting went                                 1m 48s
  a free slot           █████████▏··············  38%  41.0 s
  dependencies          ████████················  33%  36.0 s
  slot, behind higher   ██████▊·················  28%  30.5 s

Starved: 1 task was ready while a higher priority held a slot
  low  20 low  30.5 s
  1 of them for longer than 15.0 s
  aging lifted those who waited by 11 steps in all

Dropped for max_wait: 1 task (hasty)
Rejected for infeasible: 1 task (monster)
Failed: 1 task
  broken  error (exception) in 2 attempts, 1 went down with it
"""
    )


def test_what_never_ended_is_told():
    """X2."""
    summary = summarise(task("x"), ops=[{"at_ms": 5, "do": "pause", "id": "x"}])
    assert "Never ended: 1 task, still paused or waiting when nothing more happened" in render(summary, "Stuck")


def test_iterations_and_skipped_ticks_are_told():
    """R4."""
    periodic = {"id": "p", "every_ms": 10, "duration_ms": 15, "until_ms": 50}
    lines = render(summarise(task("x"), periodics=[periodic]), "Periodic").splitlines()
    assert "  Tasks      1 task and 2 periodic iterations, started 3 times" in lines
    assert "Skipped for SRS-E-RUN-002: 2 ticks" in lines


@pytest.mark.parametrize(
    "name",
    ["x" * 500, "幅広い名前" * 40, "a\x1b[31mred\n\r\t\x00", "\ud800", "é" * 90, "👩\u200d💻" * 30],
    ids=["long", "wide", "control", "surrogate", "accents", "joined"],
)
def test_no_name_breaks_the_layout_or_the_terminal(name):
    """The report is at most 80 columns wide and holds no control characters, whatever a file calls things."""
    summary = summarise(
        task("root"),
        task(name, 1, outcome="error", retry=1, scope=name, resources={name: 1}, priority=1),
        task(f"{name}2", 1, after=[name]),
        task(f"{name}3", 1, max_wait_ms=2, priority=0),
        slots=1,
        resources={name: 4},
    )
    text = render(summary, name) + render_side_by_side([summary, summary], name)
    assert max(map(width, text.splitlines())) <= WIDTH
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_hundred_priorities_fit():
    tasks = [task(f"t{number}", number, 1000 + number, priority=number) for number in range(101)]
    summary = summarise(*tasks, slots=2)
    text = render(summary, "Many") + render_side_by_side([summary, summary], "Many")
    assert max(map(width, text.splitlines())) <= WIDTH
    assert "(the 6 highest of 101)" in text


def test_the_example_fits_and_has_a_story():
    """V2: starvation, waits for vram, drops and failures, all in one example."""
    text = render(Simulation(Workload.from_file(EXAMPLE)).run().summary, "Example")
    assert max(map(width, text.splitlines())) <= WIDTH
    for part in (
        "Starved: ",
        "  vram ",
        "Dropped for max_wait",
        "Rejected for infeasible",
        "timeout",
        "went down with it",
    ):
        assert part in text


def test_runs_stand_side_by_side_one_line_each():
    """P3, P4: the order and the slots in front, the shortest makespan marked."""
    workload = Workload.from_file(EXAMPLE)
    choices = [(order, slots) for order in ("strict", "aging") for slots in (3, 6, None)]
    summaries = [Simulation(workload, order=order, slots=slots).run().summary for order, slots in choices]
    text = render_side_by_side(summaries, "Example")
    blocks = [block.splitlines() for block in text.split("\n\n")]
    assert blocks[0] == ["Example", "  97 tasks · 6 runs"]
    assert blocks[1][0].split() == "order slots makespan used p50 p90 max starved lost done".split()
    heads = [tuple(line.lstrip("▸ ").split()[:2]) for line in blocks[1][1:]]
    assert heads == [(order, str(slots).lower()) for order, slots in choices]
    shortest = min(summary["makespan_ms"] for summary in summaries)
    marked = [line.startswith("▸") for line in blocks[1][1:]]
    assert marked == [summary["makespan_ms"] == shortest for summary in summaries]
    assert blocks[2][0] == "Wait once ready, p90 by priority"
    assert blocks[3][0] == "Where the waiting went"
    assert all(len(block) == 8 for block in blocks[2:])
    assert max(map(width, text.splitlines())) <= WIDTH
