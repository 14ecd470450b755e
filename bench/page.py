"""Write ``docs/benchmarks.md`` from the results: targets, tables, plots, and what is lost and why."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from contestants import OURS, TITLES
from figures import Figures, Stat, short, verdict
from plan import COROUTINES, NEWER, PROCESSES, THREADS
from plots import draw
from reasons import reason, reason_of_target
from targets import targets
from works.graphs import PATTERNS
from works.workflows import bounds

LOST: Final = "- Lost: "
Get = Callable[[str], Stat | None]

INTRODUCTION: Final = """\
# Measured against the field

`make bench` measured everything below in one run: each contestant in a process of its own, one after the other, round
after round, the order reversed in every second round. A figure is the median over the rounds, with the lowest and the
highest in brackets. Each contestant is used as its own users would, in a few lines (`bench/contestants/`); all run the
same bodies (`bench/task_bodies.py`). whywait runs with priorities, aging, a budget, events and the account of waits on.
`make bench-quick` gives a first look in two minutes. What is compared is the ratio within one run: another machine, or
a busy one, gives other microseconds.

*First*: whywait has the best median. *Level*: it is within 5 % of the best peer, or within 15 % and each median lies in
the other's spread. *Lost*: anything else.
"""


def write_page(results: dict[str, Any], top: Path, *, quick: bool) -> Path:
    """Write the page and its plots; quick results go beside the results instead of into the documentation."""
    folder = top / "bench" / "results" if quick else top / "docs"
    path = folder / ("quick.md" if quick else "benchmarks.md")
    plots = "quick-plots" if quick else "benchmarks"
    figures = Figures(results)
    parts = [INTRODUCTION, _machine(figures), _targets(figures)]
    works = [
        _throughput, _patterns, _efficiency, _pending, _fans, _stream, _latency, _timers, _dispose, _workflows,
        _features,
    ]  # fmt: skip
    sections = [text for text in (section(figures, plots) for section in works) if text]
    lost = [line for text in sections for line in text.splitlines() if line.startswith(LOST)]
    parts.append(_summary(lost))
    newer = [] if quick else [_newer(file) for file in sorted((top / "bench" / "results").glob("python-*.json"))]
    path.write_text("\n".join([*parts, *sections, *newer]), encoding="utf-8")
    draw(figures, folder / plots)
    return path


def _machine(figures: Figures) -> str:
    machine, load = figures.results["machine"], figures.results["load"]
    rounds = [len(cell["rounds"]) for cell in figures.results["cells"]]
    versions = ", ".join(f"{name} {number or 'not installed'}" for name, number in machine["versions"].items())
    return f"""\
## The machine

- {machine["cpu"]}, {machine["cores"]} cores, {machine["memory_gb"]} GB, {machine["system"]}, Python {machine["python"]}
- {dt.datetime.now(dt.UTC):%Y-%m-%d}; rounds: {_span(rounds)}
- load average while measuring: median {statistics.median(load):.1f}, highest {max(load):.1f}. The measurements
  themselves make 1 to 2 of it; more means that others used the machine, and then the figures say little.
- {versions}
"""


def _newer(file: Path) -> str:
    """Return what was measured on a newer Python, beside the standard library alone."""
    figures = Figures(json.loads(file.read_text(encoding="utf-8")))
    machine, load = figures.results["machine"], figures.results["load"]
    totals = [key for key in figures.keys("throughput") if key.startswith("total/")]
    no_ops = {f"no-op, {_workers(key.removeprefix('total/'))}": _stats(figures, "throughput", key) for key in totals}
    latency = {key.replace("/", " "): _stats(figures, "latency", key) for key in figures.keys("latency")}
    rounds = _span([len(cell["rounds"]) for cell in figures.results["cells"]])
    text = f"""\
## On Python {machine["python"]}

Sections 1 and 5 again, in microseconds, beside the standard library alone, and bodies that compute in Python; rounds:
{rounds}, load average: median {statistics.median(load):.1f}.

"""
    for group in (THREADS, COROUTINES):
        names = [name for name in NEWER if name in group]
        text += _table(figures, "throughput", names, no_ops, no_ops) + "\n"
        text += _table(figures, "latency", names, latency, latency) + "\n"
    return text + _bodies(figures)


def _bodies(figures: Figures) -> str:
    """Return what bodies in Python take on one thread and on two, and how many times the rate of one thread that is."""
    lengths = dict.fromkeys(key.partition("/")[0] for key in figures.keys("bodies"))
    if not lengths:
        return ""
    columns: dict[str, Get] = {}
    for us in lengths:
        columns |= {f"{us} µs, {_workers(key)}": _stats(figures, "bodies", f"{us}/{key}") for key in ("1", "2")}
        columns[f"{us} µs, rate of 2 over 1"] = partial(_gain, figures, us)
    names = figures.contestants("bodies")
    return _table(figures, "bodies", names, columns, [title for title in columns if "rate" not in title])


def _gain(figures: Figures, us: str, name: str) -> Stat | None:
    """Return the rate on two threads over the rate on one, by round."""
    return Stat.of(each[f"{us}/1"] / each[f"{us}/2"] for each in figures.rounds("bodies", name))


def _span(values: list[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def _targets(figures: Figures) -> str:
    found = list(targets(figures))
    rows = [(what, goal, reached, "yes" if met else "**no**") for what, goal, reached, met in found]
    missed = [f"- Missed: {what}. Why: {reason_of_target(what)}.\n" for what, _, _, met in found if not met]
    return "## Targets\n\n" + _markdown(("target", "goal", "measured", "met"), rows) + "\n" + "".join(missed)


def _summary(lost: list[str]) -> str:
    """Return all lost rows, those with the same reason together."""
    if not lost:
        return "## Lost rows\n\nNone.\n"
    by_reason: dict[str, list[str]] = {}
    for line in lost:
        work, figure = line.removeprefix(LOST).split(": ")[:2]
        by_reason.setdefault(reason(work, figure), []).append(line)
    return "## Lost rows\n\n" + "\n".join("\n".join([f"Why: {why}.\n", *rows, ""]) for why, rows in by_reason.items())


def _markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] + ["---:"] * (len(names) - 1), *[list(row) for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _table(
    figures: Figures,
    work: str,
    names: Iterable[str],
    columns: dict[str, Callable[[str], Stat | None]],
    judge: Iterable[str],
) -> str:
    """Return a table of contestants, best first, and how whywait stands in the columns to ``judge``."""
    names = list(names)
    found = {name: {title: get(name) for title, get in columns.items()} for name in names}
    first = next(iter(columns))

    def key(name: str) -> float:
        stat = found[name][first]
        return stat.median if stat is not None else float("inf")

    rows = []
    for name in sorted((name for name in names if any(found[name].values())), key=key):
        title = f"**{TITLES[name]}**" if name in OURS else TITLES[name]
        rows.append([title, *["" if stat is None else str(stat) for stat in found[name].values()]])
    text = _markdown(["", *columns], rows) + "\n"
    for name in names:
        error = figures.error(work, name)
        if not any(found[name].values()) and error:
            text += f"- {TITLES[name]}: no figures ({error})\n"
    for title in judge:
        text += _judge(work, title, {name: found[name][title] for name in names})
    return text


def _judge(work: str, title: str, stats: dict[str, Stat | None]) -> str:
    found = verdict(stats)
    if found is None:
        return ""
    ours, peer = TITLES[found.ours], TITLES[found.peer]
    if found.word == "lost":
        return f"{LOST}{work}: {title}: {ours} needs {short(found.ratio)} times what {peer} needs.\n"
    return f"- {found.word.capitalize()}: {title}: {ours} needs {short(found.ratio)} of what {peer} needs.\n"


def _stats(figures: Figures, work: str, key: str, tasks: int | None = None) -> Get:
    return lambda name: figures.stat(work, name, key, tasks)


def _workers(count: str) -> str:
    return "1 worker" if count == "1" else f"{count} workers"


def _throughput(figures: Figures, plots: str) -> str:
    keys = figures.keys("throughput")
    if not keys:
        return ""
    totals = [key for key in keys if key.startswith("total/")]
    counts = {key: key.removeprefix("total/") for key in totals}
    columns = {_workers(count): _stats(figures, "throughput", key) for key, count in counts.items()}
    columns |= {f"{part}, 2 workers": _stats(figures, "throughput", f"{part}/2") for part in ("submit", "collect")}
    text = f"""\
## 1. No-op tasks

Microseconds for a task. (joblib with one worker starts no thread: left out.)

![no-op tasks]({plots}/throughput.svg)

"""
    for title, group in (("Threads", THREADS), ("Coroutines", COROUTINES), ("Processes", PROCESSES)):
        judge = [column for column in columns if "," not in column]
        text += f"### {title}\n\n{_table(figures, 'throughput', group, columns, judge)}\n"
    return text


def _patterns(figures: Figures, _: str) -> str:
    names = figures.contestants("patterns")
    columns = {key: _stats(figures, "patterns", key) for key in figures.keys("patterns")}
    if not columns:
        return ""
    return f"""\
## 2. Task Bench patterns

### Empty tasks

Microseconds for a task, building the graph included, 2 workers.

{_table(figures, "patterns", names, columns, columns)}
"""


def _efficiency(figures: Figures, plots: str) -> str:
    known = {key.partition("/")[0] for key in figures.keys("efficiency")}
    patterns = [name for name in PATTERNS if name in known]
    if not patterns:
        return ""
    names = [name for name in figures.contestants("efficiency") if name != "bare"]
    columns = {name: (lambda who, name=name: figures.metg(who, name)) for name in patterns}
    return f"""\
### METG(50 %)

The smallest granularity (workers x time / tasks, µs) at which half of the shared reference is reached: what 2 bare
threads do with the largest kernel ({short(figures.reference / 1e6)} MB of CRC-32 a second, a C call that releases the
GIL; bodies of 10 µs to 10 ms).

![efficiency]({plots}/efficiency.svg)

{_table(figures, "efficiency", names, columns, columns)}
"""


def _pending(figures: Figures, plots: str) -> str:
    if not figures.keys("pending"):
        return ""
    text = f"""\
## 3. Many pending tasks

One worker is held, so many tasks are submitted behind it, a quarter of them (at most 100,000) is cancelled from the
middle, then the worker is let go. Microseconds for one; memory is what the process grew by.

![pending]({plots}/pending.svg)

"""
    names = figures.contestants("pending")
    for tasks in figures.sizes("pending"):
        keys = [key for key in ("submit", "start", "cancel", "why", "bytes") if key in figures.keys("pending", tasks)]
        columns = {f"{key}, {tasks:,}": _stats(figures, "pending", key, tasks) for key in keys}
        judge = [column for column in columns if not column.startswith("why")]
        text += _table(figures, "pending", names, columns, judge) + "\n"
    return text


def _fans(figures: Figures, plots: str) -> str:
    columns = {f"{int(key):,}": _stats(figures, "fans", key) for key in figures.keys("fans")}
    if not columns:
        return ""
    table = _table(figures, "fans", figures.contestants("fans"), columns, columns)
    return f"""\
## 4. Fan-out, fan-in, and blocked tasks

One task, then so many that depend on it, then one that depends on all: microseconds for a task.

![fans]({plots}/fans.svg)

{table}
"""


def _stream(figures: Figures, _: str) -> str:
    names = figures.contestants("stream")
    if not figures.keys("stream"):
        return ""
    blocked = figures.params("stream", "whywait")["blocked"]
    titles = {"alone": "alone", f"beside {blocked:,}": "beside", "ratio": "ratio"}
    columns = {title: _stats(figures, "stream", key) for title, key in titles.items()}
    table = _table(figures, "stream", names, columns, [f"beside {blocked:,}", "ratio"])
    return f"""\
A stream of tasks, each submitted when the one before is done (µs for a task), beside tasks that are blocked by a
resource (whywait, asyncio: a second semaphore, Ray) or by a dependency (Parsl, which has no resources, and distributed,
whose stream stood still beside tasks that waited for a worker's resource).

{table}
"""


def _latency(figures: Figures, _: str) -> str:
    names = figures.contestants("latency")
    columns = {key.replace("/", " "): _stats(figures, "latency", key) for key in figures.keys("latency")}
    if not columns:
        return ""
    text = """\
## 5. From free to start

Microseconds from the end of one task to the first line of the next, one worker.

"""
    for title, group in (("Threads", set(names) - set(COROUTINES)), ("Coroutines", set(COROUTINES))):
        members = [name for name in names if name in group]
        text += f"### {title}\n\n{_table(figures, 'latency', members, columns, columns)}\n"
    return text


def _timers(figures: Figures, _: str) -> str:
    if not figures.keys("timers"):
        return ""
    params = figures.params("timers", "whywait")
    columns = {
        "p50, ms late": _stats(figures, "timers", "p50"),
        "p99, ms late": _stats(figures, "timers", "p99"),
        "drift, ms": _stats(figures, "timers", "drift"),
        "share of ticks": _stats(figures, "timers", "share"),
    }
    table = _table(figures, "timers", figures.contestants("timers"), columns, list(columns)[:2])
    return f"""\
## 6. Timers

{params["timers"]:,} periodic timers of {params["every_s"]} s, their starts spread over one period, {params["ticks"]}
ticks each. Drift: how much later, against its own grid, the last tick of a timer is than its first.

{table}
"""


def _dispose(figures: Figures, _: str) -> str:
    columns = {"µs for a task": _stats(figures, "dispose", "total")}
    names = figures.contestants("dispose")
    if not figures.keys("dispose"):
        return ""
    threads = [name for name in names if name in THREADS]
    processes = [name for name in names if name in PROCESSES]
    coroutines = [name for name in names if name in COROUTINES]
    tasks = figures.params("dispose", "whywait")["tasks"]
    return f"""\
## 7. Ending {tasks:,} pending tasks

Each task's handle or future says afterwards that it was cancelled (distributed: the client has told its scheduler; it
and Ray had 5,000).

### Threads

{_table(figures, "dispose", threads, columns, columns)}
### Processes

{_table(figures, "dispose", processes, columns, columns)}
### Coroutines

{_table(figures, "dispose", coroutines, columns, columns)}
"""


def _workflows(figures: Figures, _: str) -> str:
    if not figures.keys("workflows"):
        return ""
    params = figures.params("workflows", "whywait")
    slots = params["slots"]
    text = f"""\
## 8. Workflows with real shapes

Generated after the published shapes of Montage (an image mosaic) and Epigenomics (genome mapping), with sleeps of 1 to
150 ms; {slots} workers. The makespan in ms, and how much longer it is than the same workload in `whywait simulate`.

"""
    for shape, size in params["shapes"].items():
        limit = bounds(shape, size, slots)
        simulated = limit["simulated"]
        columns = {
            "makespan, ms": _stats(figures, "workflows", shape),
            "over simulated, %": lambda name, shape=shape, simulated=simulated: Stat.of(
                (each[shape] / simulated - 1) * 100 for each in figures.rounds("workflows", name)
            ),
        }
        facts = ", ".join(f"{key} {short(value)}" for key, value in limit.items())
        table = _table(figures, "workflows", figures.contestants("workflows"), columns, ["makespan, ms"])
        text += f"### {shape.capitalize()}\n\n{facts} (ms).\n\n{table}\n"
    return text


def _features(figures: Figures, _: str) -> str:
    keys = figures.keys("features")
    if not keys:
        return ""
    rows = []
    for feature in dict.fromkeys(key.partition("/")[0] for key in keys):
        on, off = (figures.stat("features", "whywait", f"{feature}/{state}") for state in ("on", "off"))
        ratio = Stat.of(
            each[f"{feature}/on"] / each[f"{feature}/off"] for each in figures.rounds("features", "whywait")
        )
        rows.append([feature, str(on), str(off), str(ratio)])
    table = _markdown(("feature", "on, µs", "off, µs", "ratio"), rows)
    return f"""\
## 9. What features cost

Microseconds for a no-op task of whywait with one feature on and off. Events and the account of waits cannot be switched
off by users; the measurement takes them out from inside.

{table}
"""
