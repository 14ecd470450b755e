"""Reports as text: a simulation told in full, several side by side, or a run of an authority.

Pure functions from the ``summary`` of a simulation, or the data of a
report, to a string of at most :data:`WIDTH` columns. Ids come from files, so whatever in
them is not printable is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from unicodedata import combining, east_asian_width

from whywait.kernel.limits import Priority
from whywait.observe.explain import CAUSE_HEADS, CAUSE_LABELS, is_size
from whywait.support.units import format_ms, format_size, printable
from whywait.support.words import counted

WIDTH: Final = 80
Summary = Mapping[str, Any]
Row = Sequence[str]

_BAR: Final = 24
_SMALL_BAR: Final = 12
_FIRST: Final = 10  # of the tasks that made others wait
_ENDS_OF_PATH: Final = 5  # steps of a long chain that are shown at either end
_ID: Final = 24
_MUCH_MEMORY: Final = 100_000_000  # bytes: less is told only of tasks that have asked for some
_PRIORITIES: Final = 6  # columns of a comparison by priority
_CAUSES: Final = 5  # columns of a comparison by cause
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_GB: Final = 1_000_000_000
_LIMITS: Final = 40  # resources and units of devices that are shown
_GPUS: Final = 12  # columns for the GPUs of a run
_HEADS: Final = ("order", "slots", "gpus")
_QUANTILES: Final = ("p50", "p90", "p99", "max")
_NAMES: Final = {
    value: name.lower() for name, value in vars(Priority).items() if name.isupper() and isinstance(value, int)
}


def render(summary: Summary, title: str) -> str:
    """Tell one run: how long, how full, how long tasks waited and starved, where the waiting went, what went wrong."""
    blocks = [
        _head(summary, title),
        _utilisation(summary),
        _waits(summary),
        _causes(summary),
        _starved(summary),
        _losses(summary),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def render_side_by_side(summaries: Sequence[Summary], title: str) -> str:
    """Tell several runs of one workload side by side, one line for each."""
    has_gpus = len({repr(summary["run"].get("gpus")) for summary in summaries}) > 1
    heads = [_run_head(summary["run"], has_gpus=has_gpus) for summary in summaries]
    blocks = [
        [
            _cut(printable(title), WIDTH),
            f"  {counted(summaries[0]['tasks'], 'task')} · {counted(len(summaries), 'run')}",
        ],
        _overview(summaries, heads),
        _by_priority(summaries, heads),
        _by_cause(summaries, heads),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def render_run(summary: Summary) -> str:
    """Tell a run of an authority: how it went, how full, where the waiting went, what caused it, what took longest."""
    blocks = [
        _run_summary(summary),
        _utilisation(summary),
        _causes(summary),
        _holders(summary),
        _path(summary),
        _memory(summary),
        _starved(summary),
        _lost(summary),
        _window(summary),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _run_summary(summary: Summary) -> list[str]:
    outcomes = dict(summary["outcomes"])
    running = summary["running"]
    waiting = outcomes.pop("pending") - running
    told = [f"{count:,} {outcome}" for outcome, count in outcomes.items() if count]
    told += [f"{count:,} {word}" for word, count in (("running", running), ("waiting", waiting)) if count]
    return [
        f"{_tasks(summary)} in {format_ms(summary['makespan_ms'])}",
        f"  {', '.join(told) or 'nothing to do'}",
    ]


def _holders(summary: Summary) -> list[str]:
    holders = summary["by_holder"]
    if not holders:
        return []
    most = holders[0]["cost_ms"]
    rows = [
        (_held(row), f"{_bar(row['cost_ms'] / most, _SMALL_BAR)} {format_ms(row['cost_ms'])}")
        for row in holders[:_FIRST]
    ]
    lines = ["Who made others wait", *table((), rows, left=2)]
    return lines if len(holders) <= _FIRST else [*lines, f"  and {len(holders) - _FIRST:,} more"]


def _memory(summary: Summary) -> list[str]:
    used = [row for row in summary["memory"] if row["asked"] or row["peak"] >= _MUCH_MEMORY]
    if not used:
        return []
    rows = [
        (
            _cut(printable(row["id"]), _ID),
            f"asked {format_size(row['asked'])}" if row["asked"] else "asked for none",
            f"peak {format_size(row['peak'])}",
            counted(row["tasks"], "task") if row["tasks"] > 1 else "",
        )
        for row in used[:_FIRST]
    ]
    lines = ["Memory, asked for and used", *table((), rows, left=4)]
    return lines if len(used) <= _FIRST else [*lines, f"  and {len(used) - _FIRST:,} more"]


def _held(row: Mapping[str, Any]) -> str:
    name = _cut(printable(row["id"]), _ID)
    if row["held"] == "dependency":
        return f"the end of {name} was awaited"
    what = {"slot": "a slot", "scope_slots": f"a slot of scope {row['of']}"}.get(row["held"], row["held"])
    return f"{printable(what)} held by {name}"


def _path(summary: Summary) -> list[str]:
    path = summary["critical_path"]
    steps = path["steps"]
    if len(steps) < 2:  # noqa: PLR2004  one task alone is no path
        return []
    rows = [
        (_starved_id(step), f"ran {format_ms(step['ran_ms'])}", f"after waiting {format_ms(step['waited_ms'])}")
        for step in steps
    ]
    if len(rows) > 2 * _ENDS_OF_PATH:
        left_out = len(rows) - 2 * _ENDS_OF_PATH
        rows[_ENDS_OF_PATH:-_ENDS_OF_PATH] = [(f"… {counted(left_out, 'more step')}", "", "")]
    title = f"The longest chain: {counted(len(steps), 'step')}, {format_ms(path['ms'])}"
    return [title, *table((), rows, left=2)]


def _window(summary: Summary) -> list[str]:
    events = summary["events"]
    if not events["skipped"]:
        return []
    return [
        f"Holders, chain and peaks are those of the last {events['seen']:,} events; {events['skipped']:,} before them",
        "were forgotten (Authority(events=N) remembers more).",
    ]


def _head(summary: Summary, title: str) -> list[str]:
    run = summary["run"]
    slots = "unbounded slots" if run["slots"] is None else counted(run["slots"], "slot")
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in summary["outcomes"].items() if count)
    return [
        _cut(printable(title), WIDTH),
        f"  {_order(run)} · {slots} · {run['backfill']} backfill",
        "",
        f"  Makespan   {format_ms(summary['makespan_ms'])}",
        f"  Tasks      {_tasks(summary)}, started {counted(summary['attempts'], 'time')}",
        f"  Outcome    {outcomes or 'nothing to do'}",
    ]


def _tasks(summary: Summary) -> str:
    told = counted(summary["tasks"], "task")
    return f"{told} and {counted(summary['iterations'], 'periodic iteration')}" if summary["iterations"] else told


def _order(run: Mapping[str, Any]) -> str:
    if run["order"] != "aging":
        return str(run["order"])
    cap = "no cap" if run["cap"] is None else f"cap {run['cap']}"
    return f"aging +{run['boost']} every {format_ms(run['every_ms'])}, {cap}"


def _utilisation(summary: Summary) -> list[str]:
    rows = []
    for name, use in summary["utilisation"].items():
        show = _size if is_size(name, max(use["peak"], use["limit"] or 0)) else _number
        limit, share = use["limit"], use["share"]
        bar = "" if share is None else f"{_bar(share)} {_percent(share):>4}"
        rows.append((_cut(printable(name), 16), bar, show(use["mean"]), show(use["peak"]), _or_none(limit, show)))
    lines = table(("Utilisation", "", "mean", "peak", "limit"), rows[:_LIMITS], left=2)
    return lines if len(rows) <= _LIMITS else [*lines, f"  and {len(rows) - _LIMITS:,} more"]


def _waits(summary: Summary) -> list[str]:
    waits = summary["ready_wait_ms"]
    if not waits["all"]["tasks"]:
        return []
    levels = [("all", waits["all"]), *((_level(key), row) for key, row in waits["by_priority"].items())]
    if len(levels) == 2:  # noqa: PLR2004  all tasks have one priority: its line would repeat the first
        levels = levels[1:]
    rows = [(label, f"{row['tasks']:,}", *(format_ms(row[key]) for key in _QUANTILES)) for label, row in levels]
    return table(("Wait once ready", "starts", *_QUANTILES), rows)


def _causes(summary: Summary) -> list[str]:
    causes = summary["waited_for_ms"]
    total = sum(causes.values())
    if not total:
        if summary["outcomes"].get("pending", 0) > summary.get("running", 0):
            return ["No task that has started had to wait."]
        return ["No task waited."] if summary["tasks"] or summary["iterations"] else []
    rows = [
        (
            _cut(printable(CAUSE_LABELS.get(cause, cause)), 20),
            f"{_bar(ms / total)} {_percent(ms / total):>4}",
            format_ms(ms),
        )
        for cause, ms in sorted(causes.items(), key=lambda item: -item[1])
    ]
    return table(("Where the waiting went", "", format_ms(total)), rows, left=2)


def _starved(summary: Summary) -> list[str]:
    starved = summary["starved"]
    count, now = starved["tasks"], starved["now"]
    if not count and not now:
        return []
    rows = [(_starved_id(row), _level(row["priority"]), format_ms(row["ms"])) for row in starved["worst"]]
    if count:
        lines = [
            f"Starved: {count:,} {'task was' if count == 1 else 'tasks were'} ready while a higher priority held a slot"
        ]
    else:
        lines = [
            f"Starved: {now:,} {'task is' if now == 1 else 'tasks are'} ready while a higher priority holds a slot"
        ]
    lines += table((), rows, left=2)
    if count > len(rows):
        lines.append(f"  and {count - len(rows):,} more")
    if now:
        longest, total = format_ms(starved["longest_ms"]), format_ms(starved["total_ms"])
        lines.append(f"  {now:,} starved now; the longest so far for {longest}, {total} in all")
    if starved["past_timeout"]:
        lines.append(f"  {starved['past_timeout']:,} of them for longer than {format_ms(starved['timeout_ms'])}")
    if summary["promotions"]:
        lines.append(f"  aging lifted those who waited by {counted(summary['promotions'], 'step')} in all")
    return lines


def _starved_id(row: Mapping[str, Any]) -> str:
    told = _cut(printable(row["id"]), _ID)
    return told if row["attempt"] == 1 else f"{told}, attempt {row['attempt']}"


def _lost(summary: Summary) -> list[str]:
    lines = []
    for key, word, what in (
        ("drops", "Dropped", "task"),
        ("rejects", "Rejected", "task"),
        ("skips", "Skipped", "tick"),
    ):
        for cause, count in summary.get(key, {}).items():
            names = [printable(row["id"]) for row in summary.get("lost", ()) if row["cause"] == cause]
            lines.append(f"{word} for {cause}: {counted(count, what)}{_some(names, count)}")
    return lines


def _losses(summary: Summary) -> list[str]:
    lines = _lost(summary)
    failures = summary["failures"]
    if failures["tasks"]:
        lines.append(f"Failed: {counted(failures['tasks'], 'task')}")
        lines += table((), [(_cut(printable(row["id"]), _ID), _failure(row)) for row in failures["first"]], left=2)
        if failures["tasks"] > len(failures["first"]):
            lines.append(f"  and {failures['tasks'] - len(failures['first']):,} more")
    pending = summary["outcomes"]["pending"]
    if pending:
        lines.append(f"Never ended: {counted(pending, 'task')}, still paused or waiting when nothing more happened")
    return lines


def _some(names: Sequence[str], count: int) -> str:
    """Return as many of the names in brackets as have room, and a sign that there are more."""
    room = WIDTH - 45
    shown: list[str] = []
    for name in names:
        if sum(_width(other) + 2 for other in (*shown, name)) > room:
            break
        shown.append(name)
    if not shown:
        return ""
    return f" ({', '.join(shown)}{', …' if len(shown) < count else ''})"


def _failure(row: Mapping[str, Any]) -> str:
    told = row["outcome"] if row["cause"] in {None, "run_timeout"} else f"{row['outcome']} ({row['cause']})"
    if row["attempts"] > 1:
        told += f" in {row['attempts']} attempts"
    if row["brought_down"]:
        told += f", {row['brought_down']:,} went down with it"
    return told


def _overview(summaries: Sequence[Summary], heads: Sequence[Row]) -> list[str]:
    shortest = min(summary["makespan_ms"] for summary in summaries)
    quantiles = ("p50", "p90", "max") if len(heads[0]) < len(_HEADS) else ("p50", "max")  # a line has so much room
    rows = []
    for head, summary in zip(heads, summaries, strict=True):
        waits = summary["ready_wait_ms"]["all"]
        share = summary["utilisation"]["slots"]["share"]
        row = (
            *head,
            format_ms(summary["makespan_ms"]),
            "" if share is None else _percent(share),
            *(format_ms(waits[key]) if waits["tasks"] else "" for key in quantiles),
            str(summary["starved"]["tasks"]),
            str(sum(summary["drops"].values()) + sum(summary["rejects"].values())),
            str(summary["outcomes"]["success"]),
        )
        rows.append(row)
    titles = (*_titles(heads), "makespan", "used", *quantiles, "starved", "lost", "done")
    lines = table(titles, rows)
    for number, summary in enumerate(summaries, 1):
        if summary["makespan_ms"] == shortest:
            lines[number] = f"▸{lines[number][1:]}"
    return lines


def _by_priority(summaries: Sequence[Summary], heads: Sequence[Row]) -> list[str]:
    levels = sorted(
        {int(key) for summary in summaries for key in summary["ready_wait_ms"]["by_priority"]}, reverse=True
    )
    if len(levels) <= 1:
        return []
    shown = levels[:_PRIORITIES]
    rows = []
    for head, summary in zip(heads, summaries, strict=True):
        waits = summary["ready_wait_ms"]["by_priority"]
        rows.append((*head, *(format_ms(waits[str(key)]["p90"]) if str(key) in waits else "" for key in shown)))
    note = "" if len(shown) == len(levels) else f" (the {_PRIORITIES} highest of {len(levels)})"
    titles = (*_titles(heads), *(_NAMES.get(key, str(key)) for key in shown))
    return [f"Wait once ready, p90 by priority{note}", *table(titles, rows)]


def _by_cause(summaries: Sequence[Summary], heads: Sequence[Row]) -> list[str]:
    totals: dict[str, float] = {}
    for summary in summaries:
        for cause, ms in summary["waited_for_ms"].items():
            totals[cause] = totals.get(cause, 0) + ms
    shown = sorted((cause for cause in totals if totals[cause]), key=lambda cause: -totals[cause])[:_CAUSES]
    if not shown:
        return []
    rows = []
    for head, summary in zip(heads, summaries, strict=True):
        causes = summary["waited_for_ms"]
        total = sum(causes.values())
        shares = (_percent(causes.get(cause, 0) / total) if total else "" for cause in shown)
        rows.append((*head, format_ms(total), *shares))
    titles = (*_titles(heads), "in all", *(_cut(printable(CAUSE_HEADS.get(cause, cause)), 9) for cause in shown))
    return ["Where the waiting went", *table(titles, rows)]


def _titles(heads: Sequence[Row]) -> Row:
    return _HEADS[: len(heads[0])]


def _run_head(run: Mapping[str, Any], *, has_gpus: bool) -> Row:
    head = (run["order"], "none" if run["slots"] is None else str(run["slots"]))
    return (*head, _cut(_gpus(run.get("gpus")), _GPUS)) if has_gpus else head


def _gpus(units: Mapping[str, int] | None) -> str:
    """Give GPUs as people say them: "2 x 24 GB", "24 GB, 12 GB"."""
    sizes = [f"{size / 1e9:g} GB" if size >= _GB / 10 else str(size or 1) for size in (units or {}).values()]
    if not sizes:
        return "none"
    if len(set(sizes)) > 1:
        return ", ".join(sizes)
    return f"{len(sizes)} x {sizes[0]}" if sizes[0] != "1" else str(len(sizes))


def table(titles: Row, rows: Sequence[Row], *, left: int = 1) -> list[str]:
    """Align columns, the first ``left`` to the left and the others to the right; rows stand indented below titles."""
    lines = [*([titles] if titles else []), *([f"  {row[0]}", *row[1:]] for row in rows)]
    sizes = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    told = []
    for line in lines:
        gaps = [" " * (size - _width(cell)) for cell, size in zip(line, sizes, strict=True)]
        cells = [
            cell + gap if column < left else gap + cell
            for column, (cell, gap) in enumerate(zip(line, gaps, strict=True))
        ]
        told.append(_cut("  ".join(cells).rstrip(), WIDTH))
    return told


def _bar(share: float, length: int = _BAR) -> str:
    eighths = round(min(max(share, 0.0), 1.0) * length * 8)
    if share > 0 and not eighths:
        eighths = 1  # little is not nothing
    full, part = divmod(eighths, 8)
    bar = _EIGHTHS[8] * full + (_EIGHTHS[part] if part else "")
    return bar + "·" * (length - len(bar))


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"  # noqa: PLR2004  what would round to nothing


def _level(priority: int | str) -> str:
    name = _NAMES.get(int(priority))
    return f"{priority} {name}" if name else str(priority)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _size(value: float) -> str:
    return format_size(value)


def _or_none(limit: int | None, show: Any) -> str:  # noqa: ANN401  one of the two functions above
    return "none" if limit is None else str(show(limit))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    while _width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
