"""The arithmetic behind docs/benchmarks.md: graphs, medians, METG, and who is first; no time is measured here."""

import json
import math
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
sys.path.append(str(TOP / "bench"))

from contestants import OURS, TITLES, load  # noqa: E402 - it is found through the line above
from figures import Figures, Stat, verdict  # noqa: E402
from plan import cells  # noqa: E402
from targets import targets  # noqa: E402
from task_bodies import nothing  # noqa: E402
from works.graphs import PATTERNS, epigenomics, montage, pattern  # noqa: E402
from works.workflows import bounds  # noqa: E402


def results(*cells_of) -> Figures:
    return Figures(
        {
            "cells": [{"work": w, "contestant": c, "params": p, "rounds": r} for w, c, p, r in cells_of],
            "bytes_per_us": 1,
        }
    )


@pytest.mark.parametrize("name", PATTERNS)
def test_a_task_depends_on_earlier_ones_of_the_row_before(name):
    graph = pattern(name, 8, 6)
    assert all(each < number for number, after in enumerate(graph) for each in after)
    assert len(graph) == (1 + 2 + 4 + 8 + 8 + 8 if name == "tree" else 48)
    assert any(graph) == (name != "trivial")


def test_patterns_have_the_neighbours_of_task_bench():
    assert pattern("stencil", 4, 2)[4:] == [(0, 1), (0, 1, 2), (1, 2, 3), (2, 3)]
    assert pattern("fft", 4, 3)[8:] == [(4, 6), (5, 7), (4, 6), (5, 7)]
    assert pattern("tree", 4, 3) == [(), (0,), (0,), (1,), (1,), (2,), (2,)]
    assert pattern("random", 16, 4) == pattern("random", 16, 4)


@pytest.mark.parametrize(
    ("names", "graph", "durations_ms"), [montage(10), epigenomics(2, 4)], ids=["montage", "genome"]
)
def test_a_workflow_is_one_graph_that_ends_in_one_task(names, graph, durations_ms):
    assert len(set(names)) == len(graph) == len(durations_ms)
    followed = {each for after in graph for each in after}
    assert set(range(len(graph))) - followed == {len(graph) - 1}


@pytest.mark.parametrize("slots", [1, 4])
def test_no_schedule_beats_the_bounds(slots):
    limit = bounds("montage", 10, slots)
    assert limit["simulated"] >= max(limit["critical path"], limit["work over slots"])
    if slots == 1:
        assert limit["simulated"] == limit["work over slots"]


def test_metg_lies_where_half_of_the_reference_is_reached():
    def rates(first, second):
        return {"x/10/rate": first, "x/10/granularity": 10.0, "x/1000/rate": second, "x/1000/granularity": 1000.0}

    params = {"sizes": [10, 1000]}
    figures = results(
        ("efficiency", "bare", params, [{"figures": rates(100.0, 100.0)}]),
        ("efficiency", "whywait", params, [{"figures": rates(25.0, 75.0)}]),
        ("efficiency", "hand", params, [{"figures": rates(60.0, 90.0)}]),
        ("efficiency", "dask", params, [{"figures": rates(1.0, 2.0)}]),
    )
    assert figures.metg("whywait", "x").median == pytest.approx(100.0)
    assert figures.metg("hand", "x").median == pytest.approx(10.0)
    assert math.isinf(figures.metg("dask", "x").median)


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ((9, 8, 12), (10, 9, 11), "first"),
        ((10.4, 10.3, 10.5), (10, 10, 10), "level"),
        ((11, 9, 12), (10, 9, 12), "level"),
        ((11, 10.9, 12), (10, 9, 10.8), "lost"),
        ((20, 5, 40), (10, 5, 40), "lost"),
    ],
)
def test_a_row_is_lost_unless_it_is_close(ours, theirs, word):
    assert verdict({"whywait": Stat(*ours, 3), "threadpool": Stat(*theirs, 3)}).word == word


def test_a_row_without_a_peer_is_not_won():
    assert verdict({"whywait": Stat(1, 1, 1, 3), "threadpool": None}) is None


def test_an_error_is_no_figure():
    figures = results(("throughput", "ray", {}, [{"error": "not installed: ray"}, {"figures": {"total/2": 3.0}}]))
    assert figures.stat("throughput", "ray", "total/2") == Stat(3.0, 3.0, 3.0, 1)
    assert figures.error("throughput", "ray") == "not installed: ray"


def test_a_missed_target_is_told():
    rows = [
        ("throughput", name, {}, [{"figures": {"total/2": us}}]) for name, us in (("whywait", 10), ("threadpool", 20))
    ]
    assert list(targets(results(*rows))) == [
        ("no-op rate over ThreadPoolExecutor, by workers", "at least 3", "2 (2)", False)
    ]


@pytest.mark.parametrize("quick", [True, False])
def test_every_planned_contestant_has_a_name_and_every_cell_is_plain_data(quick):
    plan = list(cells(quick, 1000.0))
    assert {cell.contestant for cell in plan} <= set(TITLES)
    assert set(OURS) <= {cell.contestant for cell in plan}
    assert all(json.loads(json.dumps(cell.params)) == cell.params for cell in plan)


@pytest.mark.parametrize("name", ["whywait", "graphlib", "hand"])
def test_a_graph_is_run_once_each_and_in_order(name):
    graph = pattern("stencil", 4, 4)
    done: list[int] = []

    def body(number, *_):
        done.append(number)

    load(name).graph(2, graph, body, list(range(len(graph))))
    warmed_up = len(done) - len(graph)
    order = done[warmed_up:]
    assert sorted(order) == list(range(len(graph)))
    assert all(order.index(each) < order.index(number) for number, after in enumerate(graph) for each in after)


@pytest.mark.parametrize("name", ["whywait", "whywait-executor", "whywait-asyncio", "threadpool", "hand"])
def test_no_ops_are_timed_in_parts_that_add_up(name):
    seconds = load(name).no_ops(2, 10, nothing)
    assert seconds["total"] == pytest.approx(seconds["submit"] + seconds["collect"])
