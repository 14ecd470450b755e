"""Hostile files: valid ones with something wrong in them, and garbage in the shape of valid ones."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from whywait import Aging, Authority, Call, Retry

LONGEST_S = 20  # one input, on a loaded machine; what takes this long is taken never to end


@contextmanager
def in_time():
    """Raise if the block does not end; a loop that never does would stop the whole suite."""

    def give_up(*_):
        raise AssertionError(f"it did not end within {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def a_run(folder: Path) -> tuple[Path, Path]:
    """Run tasks of all kinds, and return the files of their events and of their commands."""
    events, record = folder / "run.jsonl", folder / "run.rec"
    gate = threading.Event()
    options = {"slots": 2, "cpu": 4, "ram": "2GB", "resources": {"licence": 1}, "order": Aging(every=0.01)}
    options |= {"gpus": ["8GB", "8GB"], "devices": {"rig": ["a", "b"]}, "starvation_timeout": 0.02}
    with (
        Authority(**options, events_file=events, record=record) as authority,
        authority.scope("outer", slots=1) as outer,
        outer.scope("inner", max_spawn=50) as inner,
    ):
        first = inner.submit(gate.wait, id="first", cpu=3, priority="low")
        waiting = authority.submit(int, id="waits", cpu=2, after=[first])
        authority.submit(int, "x", id="fails", retry=Retry(2, backoff=0.001, jitter=0.5), after_ended=[waiting])
        authority.submit(int, id="licensed", resources={"licence": 1}, priority="critical", ram="1GB")
        authority.submit_many([Call(int), Call(int), Call(int)])
        authority.submit(int, id="card", gpu=1, devices={"rig": 1})
        authority.submit(int, id="part", vram="2GB")
        authority.get_scope("default").periodic(int, every=0.005, id="tick", jitter=0.1, overlap="queue")
        paused = outer.submit(int, id="paused")
        paused.pause()
        outer.submit(int, id="cancelled").cancel()
        paused.resume()
        outer.suspend()
        outer.resume()
        authority.resize(slots=3, gpus=["8GB"])
        gate.set()
        waiting.result(30)
    return events, record


SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 120),
    st.sampled_from([2**31, 2**63, 10**15, 10**18, -(10**18), 10**300, 10**400, 1e308, -1e308, 1e-308, 0.5, -0.0]),
    st.sampled_from(["", "a", "b", "first", "outer", "inner", "READY", "RUNNING", "success", "TASK_STARTED", "slot"]),
    st.sampled_from(["x" * 100_000, "\x00", "\x1b[31m", "\ud800", "ä" * 50, "-", "1GB", "5m", "{item}", "@0000000001"]),
    st.text(max_size=8),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
)
ANYTHING = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)


def paths_in(value, path=()):
    """Yield the path of every value inside a value, itself included."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_in(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths_in(inner, (*path, index))


def replaced(value, path, new):
    """Return the value with another at a path."""
    if not path:
        return new
    head, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[head] = replaced(copy[head], rest, new)
    return copy


def without(value, path):
    """Return the value without what is at a path."""
    if len(path) > 1:
        head, *rest = path
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[head] = without(copy[head], rest)
        return copy
    copy = dict(value) if isinstance(value, dict) else list(value)
    del copy[path[0]]
    return copy


@st.composite
def mutated(draw, value, *, most=3):
    """Return a value with a few things wrong in it."""
    for _ in range(draw(st.integers(1, most))):
        paths = list(paths_in(value))
        path = draw(st.sampled_from(paths))
        how = draw(st.sampled_from(["replace", "remove", "copy", "swap"]))
        if how == "remove" and path:
            value = without(value, path)
        elif how in ("copy", "swap"):
            other = draw(st.sampled_from(paths))
            there = value
            for part in other:
                there = there[part]
            value = replaced(value, path, there)
        else:
            value = replaced(value, path, draw(ANYTHING))
    return value


@st.composite
def mutated_lines(draw, lines):
    """Return lines of JSON with a few of them changed, removed, doubled, moved or cut."""
    lines = list(lines)
    for _ in range(draw(st.integers(1, 3))):
        if not lines:
            break
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["change", "change", "change", "remove", "double", "move", "cut", "garbage"]))
        if how == "change":
            try:
                lines[at] = json.dumps(draw(mutated(json.loads(lines[at]))))
            except ValueError:
                lines[at] = "?"
        elif how == "remove":
            del lines[at]
        elif how == "double":
            lines.insert(at, lines[at])
        elif how == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif how == "cut":
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
        else:
            lines[at] = json.dumps(draw(ANYTHING))
    return "\n".join(lines) + draw(st.sampled_from(["\n", ""]))


@st.composite
def broken_bytes(draw, data: bytes):
    """Return bytes with a few of them flipped, or cut off."""
    data = bytearray(data)
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)
