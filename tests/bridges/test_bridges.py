"""Events carried elsewhere: a file, a trace, the log, OpenTelemetry."""

import json
import logging
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kernel_driver import MS, Driver, kernel
from whywait import Authority, Retry
from whywait.bridges import JsonLines, LogBridge, chrome_trace, read_events, write_trace
from whywait.bridges.otel import SpanBridge


def busy_run(authority):
    """One that holds vram, one that waits for it, one that waits for that one."""
    gate = threading.Event()
    authority.submit(gate.wait, id="train", vram="5GB", priority="high")
    waiting = authority.submit(int, id="upscale", vram="4GB")
    last = authority.submit(str, waiting, id="pack")
    gate.set()
    assert last.result(30) == "0"


# JSON Lines


def test_the_file_holds_every_event(tmp_path):
    """V3: those before the writer came included; read back they are the same."""
    path = tmp_path / "run.jsonl"
    with Authority(slots=2, vram="6GB") as authority:
        authority.submit(int, id="before").result(30)
        with JsonLines(authority, path) as writer:
            busy_run(authority)
            for _ in range(200):
                authority.submit(int)
            authority.submit(int, priority=0).result(30)
        written = list(read_events(path))
        assert writer.error is None
        assert written == authority.events()[: len(written)]
        assert written[-1].seq > 600


def test_missing_events_are_a_line_of_their_own(tmp_path):
    """V3: the file says what it does not have."""
    path = tmp_path / "run.jsonl"
    with Authority(slots=1, events=5) as authority:
        for _ in range(10):
            authority.submit(int).result(30)
        first = authority.events()[0].seq
        JsonLines(authority, path).close()
    assert json.loads(path.read_text().splitlines()[1]) == {"skipped": first - 1}
    assert next(read_events(path)).seq == first


# Chrome Trace


def driven():
    driver = Driver(kernel(2, cpu=4))
    scope = driver.scope("s", slots=1)
    driver.submit("high", 80, cpu=3, lasts=20)
    driver.submit("inside", scope=scope, lasts=15)
    driver.submit("wide", cpu=2, lasts=5)
    driver.submit("inside too", scope=scope, lasts=5)
    driver.submit("after", after=["wide"], lasts=5)
    driver.submit("open end", cpu=1, lasts=None)
    driver.until(18)
    driver.cancel(driver.submit("given up", 0))
    driver.until(60)
    driver.submit("never runs", cpu=4)
    driver.until(70)
    return driver


def slices(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_each_slot_is_a_track_on_which_nothing_overlaps():
    """V3: as many tracks as slots were used at once; every run is there with its exact time."""
    trace = chrome_trace(driven().events)
    runs = slices(trace, "X")
    assert {event["name"]: (event["ts"], event["dur"]) for event in runs if event["name"] != "open end"} == {
        "high": (0, 20_000),
        "inside": (0, 15_000),
        "inside too": (15_000, 5_000),
        "wide": (20_000, 5_000),
        "after": (25_000, 5_000),
    }
    for slot in (1, 2):
        ends = 0
        for event in sorted((event for event in runs if event["tid"] == slot), key=lambda event: event["ts"]):
            assert event["ts"] >= ends
            ends = event["ts"] + event["dur"]
    assert {event["tid"] for event in runs} == {1, 2}
    names = [event["args"]["name"] for event in slices(trace, "M") if event["name"] == "thread_name"]
    assert sorted(names) == ["slot 1", "slot 2"]


def test_waits_are_slices_named_by_their_cause():
    """V3, V7: inside the task's own; each begin has its end."""
    trace = chrome_trace(driven().events)
    waits: dict[int, list[tuple[str, float]]] = {}
    for event in slices(trace, "b") + slices(trace, "e"):
        assert event["cat"] == "wait"
        waits.setdefault(event["id"], []).append((event["name"], event["ts"]))
    for marks in waits.values():
        names = [name for name, _ in marks]
        assert all(names.count(name) % 2 == 0 for name in names)
    causes = {name for marks in waits.values() for name, _ in marks}
    assert {"slot_higher", "dependency", "cpu"} <= causes
    colours = {event["name"]: event["cname"] for event in slices(trace, "b") if "cname" in event}
    assert len(set(colours.values())) == len(colours)


def test_counters_follow_budget_lanes_and_causes():
    """V3: at the end the open one runs and one waits for cpu."""
    trace = chrome_trace(driven().events)
    last = {event["name"]: event["args"] for event in slices(trace, "C")}
    assert last["slots"] == {"held": 1}
    assert last["budget cpu"] == {"in use": 1}
    assert {name: count for name, count in last["lanes"].items() if count} == {"50 cpu=4": 1}
    assert {cause: count for cause, count in last["waiting for"].items() if count} == {"cpu": 1}
    assert max(event["args"]["in use"] for event in slices(trace, "C") if event["name"] == "budget cpu") == 3


def test_a_trace_of_a_real_run_is_valid_json_in_order(tmp_path):
    """V3: every event has what the format asks for."""
    with Authority(slots=2, vram="6GB") as authority:
        busy_run(authority)
    path = tmp_path / "run.trace.json"
    write_trace(path, authority.events())
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"skipped events": 0}
    for event in trace["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    assert {"train", "upscale", "pack"} == {event["name"] for event in slices(trace, "X")}


# logging


def test_the_log_tells_a_reason_once_when_it_changes(caplog):
    """V7, D5: ten tasks wait for vram: one line when that begins, one when it ends."""
    caplog.set_level(logging.DEBUG, "whywait")
    gate = threading.Event()
    with Authority(slots=4, vram="6GB") as authority, LogBridge(authority):
        authority.submit(gate.wait, id="train", vram="6GB")
        handles = [authority.submit(int, vram="1GB") for _ in range(10)]
        gate.set()
        for handle in handles:
            handle.result(30)
    lane = [record.getMessage() for record in caplog.records if record.name == "whywait.lane"]
    assert lane[0] == "tasks of priority 50 in scope default that need 1.0 GB vram: waiting for vram"
    assert lane.count(lane[0]) <= 2  # again only if it has changed meanwhile
    assert "waiting for vram" not in lane[-1]
    tasks = {record.getMessage() for record in caplog.records if record.name == "whywait.task"}
    assert "train started at once" in tasks
    assert "train succeeded" in tasks


def test_levels_and_events_of_the_log(caplog):
    """D5: failures and drops are warnings; a record carries its event."""
    caplog.set_level(logging.DEBUG, "whywait")
    with Authority(slots=1) as authority, LogBridge(authority):
        authority.submit(int, "x", id="bad").exception(30)
        authority.submit(int, id="good").result(30)
    records = {record.getMessage(): record for record in caplog.records if record.name == "whywait.task"}
    assert records["bad failed: its body raised an exception"].levelno == logging.WARNING
    assert records["good succeeded"].levelno == logging.DEBUG
    assert records["good succeeded"].whywait["kind"] == "TASK_FINISHED"


# OpenTelemetry


@pytest.fixture
def spans():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test"), exporter
    provider.shutdown()


def test_a_span_for_each_task_with_its_wait_and_the_submitters_parent(spans):
    """V1, V3: waits by cause as attributes; the start is an event of the span."""
    tracer, exporter = spans
    with Authority(slots=2, vram="6GB") as authority, SpanBridge(authority, tracer):
        with tracer.start_as_current_span("request") as request:
            busy_run(authority)
        authority.submit(int, id="outside").result(30)
    found = {span.name: span for span in exporter.get_finished_spans()}
    waits = dict(found["upscale"].attributes)
    assert waits["whywait.wait.vram_ms"] == pytest.approx(waits["whywait.waited_ms"])
    assert waits["whywait.waited_ms"] > 0
    assert waits["whywait.outcome"] == "success"
    assert waits["whywait.demand.vram"] == 4_000_000_000
    assert [event.name for event in found["upscale"].events] == ["started"]
    assert found["pack"].attributes["whywait.wait.dependency_ms"] > 0
    for name in ("train", "upscale", "pack"):
        assert found[name].parent.span_id == request.get_span_context().span_id
        assert found[name].end_time > found[name].start_time
    assert found["outside"].parent is None


def test_spans_and_traces_name_the_units_of_a_task(spans, tmp_path):
    """N3, V3: once it has started."""
    tracer, exporter = spans
    with Authority(slots=1, gpus=2, devices={"rig": ["a"]}) as authority, SpanBridge(authority, tracer):
        authority.submit(int, id="both", gpu=2, devices={"rig": 1}).result(30)
    (span,) = exporter.get_finished_spans()
    assert span.attributes["whywait.devices.gpu"] == ("0", "1")
    assert span.attributes["whywait.devices.rig"] == ("a",)
    write_trace(tmp_path / "trace.json", authority.events())
    (run,) = slices(json.loads((tmp_path / "trace.json").read_text()), "X")
    assert run["args"]["devices"] == {"gpu": ["0", "1"], "rig": ["a"]}


def test_attempts_are_spans_of_their_own_with_the_same_parent(spans):
    """T7: and a failure is an error of the span."""
    tracer, exporter = spans
    with Authority(slots=1) as authority, SpanBridge(authority, tracer):
        with tracer.start_as_current_span("request") as request:
            handle = authority.submit(int, "x", id="bad", retry=Retry(2))
        assert isinstance(handle.exception(30), ValueError)
    attempts = [span for span in exporter.get_finished_spans() if span.name == "bad"]
    assert [span.attributes["whywait.attempt"] for span in attempts] == [1, 2, 3]
    assert {span.parent.span_id for span in attempts} == {request.get_span_context().span_id}
    assert {span.status.status_code.name for span in attempts} == {"ERROR"}
    assert attempts[0].attributes["whywait.cause"] == "exception"


def test_spans_of_living_tasks_end_with_the_bridge(spans):
    tracer, exporter = spans
    gate = threading.Event()
    with Authority(slots=1) as authority:
        with SpanBridge(authority, tracer):
            authority.submit(gate.wait, id="alive")
            dropped = authority.submit(int, id="pending")
            dropped.cancel()
        gate.set()
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert found["pending"].attributes["whywait.outcome"] == "aborted"
    assert "whywait.outcome" not in found["alive"].attributes


def test_times_of_spans_are_those_of_the_wall_clock(spans):
    """V3: events use the monotonic clock, spans the epoch."""
    import time

    tracer, exporter = spans
    before = time.time_ns()
    with Authority(slots=1) as authority, SpanBridge(authority, tracer):
        authority.submit(int, id="task").result(30)
    (span,) = [each for each in exporter.get_finished_spans() if each.name == "task"]
    slack = 1000 * MS  # the two clocks are read one after the other
    assert before - slack < span.start_time <= span.end_time < time.time_ns() + slack
