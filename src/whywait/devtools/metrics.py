"""Metrics: the scheduler's counters as JSON, or as Prometheus text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import accumulate
from operator import getitem
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from whywait.devtools.feed import Feed
from whywait.devtools.histograms import BOUNDS_S, OTHER, Histogram

JSON_KINDS: Final = ("application/json",)
TEXT_KINDS: Final = ("text/plain", "application/openmetrics-text")


def prefers_json(accept: str) -> bool:
    """Return whether an Accept header prefers JSON to text; among equals, what is named wins over what * stands for."""
    json, text = (max(_quality(accept, kind) for kind in kinds) for kinds in (JSON_KINDS, TEXT_KINDS))
    return json > text and json[0] > 0


def _quality(accept: str, kind: str) -> tuple[float, int]:
    """Return how much a header likes a kind, from 0 to 1, and how exactly it says so: 2 by name, 1 by type, 0 by *."""
    names = {kind: 2, f"{kind.partition('/')[0]}/*": 1, "*/*": 0}
    liked = (0.0, -1)
    for part in accept.lower().split(","):
        name, *settings = (text.strip() for text in part.split(";"))
        exactly = names.get(name, -1)
        if exactly > liked[1]:
            given = [text[2:] for text in settings if text.startswith("q=")]
            liked = (_number(given[0]) if given else 1.0, exactly)
    return liked


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"[01](\.[0-9]{0,3})?", text) else 0.0


class JsonMetric(NamedTuple):
    """One number, or table of numbers, of the JSON form."""

    about: str
    source: str | Callable[[dict[str, Any]], Any]  # where it is in `stats()`, or how it is made of the picture of now

    def value(self, stats: dict[str, Any], picture: dict[str, Any]) -> Any:  # noqa: ANN401 - a number or a table
        """Return what is told."""
        return reduce(getitem, self.source.split("."), stats) if isinstance(self.source, str) else self.source(picture)


_OF_UNIT: Final = ("kind", "name", "size", "used", "present", "holders_total")

JSON_METRICS: Final = {
    "enabled": JsonMetric("whether slots are bounded", lambda now: now["slots"]["limit"] is not None),
    "activeCount": JsonMetric("tasks that run, with a slot or without", "active"),
    "queuedCount": JsonMetric("READY tasks", "queued"),
    "notReadyCount": JsonMetric("pending tasks that are in no lane", "not_ready"),
    "totalSubmitted": JsonMetric("tasks accepted", "submitted"),
    "totalCompleted": JsonMetric("tasks ended, however", "completed"),
    "starvationPromotions": JsonMetric("aging steps gained by tasks that left READY", "starvation_promotions"),
    "starvedCount": JsonMetric("READY tasks that a higher priority starves", "starvation.now"),
    "starvationLongestNs": JsonMetric("the longest starvation of any task so far, in ns", "starvation.longest_ns"),
    "starvationTotalNs": JsonMetric("the starvation of all tasks so far, in ns", "starvation.total_ns"),
    "devices": JsonMetric(
        "units of devices: kind, name, memory, how much of it is used, how many tasks are on it",
        lambda now: [{key: unit[key] for key in _OF_UNIT} for unit in now["devices"]],
    ),
    "totalRetried": JsonMetric("attempts after the first", "retried"),
    "byOutcome": JsonMetric("tasks ended, by outcome", "by_outcome"),
    "droppedByCause": JsonMetric("tasks dropped, by cause", "dropped"),
    "rejectedByCause": JsonMetric("submissions refused, by cause", "rejected"),
    "waitNsByCause": JsonMetric("waiting of tasks that have started, by cause, in ns", "wait_ns_by_cause"),
    "waitNs": JsonMetric("quantiles of the wait of the tasks started last, in ns", "wait_ns"),
}


def json_metrics(stats: dict[str, Any], picture: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics as a JSON-ready dict."""
    return {"scheduler": {name: metric.value(stats, picture) for name, metric in JSON_METRICS.items()}}


def prometheus_metrics(accept: str, stats: dict[str, Any], picture: dict[str, Any], feed: Feed) -> tuple[bytes, str]:
    """Return the metrics as text, in the dialect that is accepted, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(stats, picture, feed))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


class RunCollector(Collector):
    """The metrics of a run for a registry of the user's: ``REGISTRY.register(tools.collector)``."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        """Ask ``families`` whenever the registry is read."""
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return every metric; none when the run is over."""
        return self._families()


class Metrics(Collector):
    """What the metrics are at this moment."""

    def __init__(self, stats: dict[str, Any], picture: dict[str, Any], feed: Feed) -> None:
        self._stats = stats
        self._picture = picture
        self._feed = feed

    def collect(self) -> Iterable[Metric]:
        """Yield every metric."""
        yield from self._counters()
        yield from self._gauges()
        histograms = self._feed.histograms
        waits = HistogramMetricFamily(
            "whywait_task_wait_seconds", "Time from submission to start.", labels=("priority", "scope")
        )
        runs = HistogramMetricFamily(
            "whywait_task_run_seconds", "Time from start to end.", labels=("priority", "scope", "outcome")
        )
        yield _filled(waits, histograms.waits)
        yield _filled(runs, histograms.runs)

    def _counters(self) -> Iterator[Metric]:
        stats = self._stats
        for name, text, value in (
            ("tasks_submitted", "Tasks accepted.", stats["submitted"]),
            ("tasks_retried", "Attempts after the first.", stats["retried"]),
            ("tasks_starved", "Tasks starved beyond the timeout.", stats["starved"]),
            ("starvation_promotions", "Aging steps gained by tasks that left READY.", stats["starvation_promotions"]),
            ("starvation_seconds", "Starvation of all tasks.", stats["starvation"]["total_ns"] / 1e9),
            ("devtools_events_skipped", "Events that DevTools missed.", self._feed.skipped),
        ):
            yield CounterMetricFamily(f"whywait_{name}", text, value=value)
        for name, label, text, values in (
            ("tasks_completed", "outcome", "Tasks ended, by outcome.", stats["by_outcome"]),
            ("tasks_dropped", "reason", "Tasks dropped, by cause.", stats["dropped"]),
            ("tasks_rejected", "reason", "Submissions refused, by cause.", stats["rejected"]),
        ):
            family = CounterMetricFamily(f"whywait_{name}", text, labels=(label,))
            for key, value in values.items():
                family.add_metric((key,), value)
            yield family
        waited = CounterMetricFamily(
            "whywait_waited_seconds", "Waiting of tasks that have started, by reason.", labels=("reason",)
        )
        for cause, ns in stats["wait_ns_by_cause"].items():
            waited.add_metric((cause,), ns / 1e9)
        yield waited

    def _gauges(self) -> Iterator[Metric]:
        stats, picture, label = self._stats, self._picture, self._feed.histograms.scope_label
        starvation = stats["starvation"]
        for name, text, value in (
            ("tasks_running", "Tasks that run, with a slot or without.", stats["active"]),
            ("tasks_starving", "READY tasks that a higher priority starves.", starvation["now"]),
            ("starvation_longest_seconds", "The longest starvation of any task.", starvation["longest_ns"] / 1e9),
        ):
            yield GaugeMetricFamily(f"whywait_{name}", text, value=value)
        lanes: dict[tuple[str, str, str], int] = {}
        for lane in picture["lanes"]:
            key = (str(lane["priority"]), label(lane["scope"]), lane["waits_for"])
            lanes[key] = lanes.get(key, 0) + lane["length"]
        beyond = stats["queued"] - sum(lanes.values())  # the picture has the first lanes only
        if beyond:
            lanes[OTHER, OTHER, OTHER] = beyond
        ready = GaugeMetricFamily(
            "whywait_tasks_ready", "Tasks in lanes, by what they wait for.", labels=("priority", "scope", "reason")
        )
        for key, count in lanes.items():
            ready.add_metric(key, count)
        yield ready
        not_ready = stats["not_ready"]
        yield GaugeMetricFamily("whywait_tasks_not_ready", "Pending tasks that are in no lane.", value=not_ready)
        limit = GaugeMetricFamily("whywait_budget_limit", "What may be in use at once.", labels=("resource",))
        used = GaugeMetricFamily("whywait_budget_used", "What is in use.", labels=("resource",))
        for gate in ({**picture["slots"], "name": "slots"}, *picture["budget"]):
            if gate["limit"] is not None:
                limit.add_metric((gate["name"],), gate["limit"])
                used.add_metric((gate["name"],), gate["limit"] - gate["free"])
        yield limit
        yield used
        yield from self._devices()

    def _devices(self) -> Iterator[Metric]:
        families = [
            GaugeMetricFamily(f"whywait_device_{name}", text, labels=("kind", "unit"))
            for name, text in (
                ("memory_bytes", "Memory of a unit; 0 if it has none to share."),
                ("memory_used_bytes", "Memory that tasks on a unit have asked for."),
                ("tasks", "Tasks on a unit."),
                ("present", "1 if the unit is there, 0 if it is gone."),
            )
        ]
        for unit in self._picture["devices"]:
            labels = (unit["kind"], unit["name"])
            values = (unit["size"], unit["used"], unit["holders_total"], int(unit["present"]))
            for family, value in zip(families, values, strict=True):
                family.add_metric(labels, value)
        yield from families


def _filled(family: HistogramMetricFamily, histogram: Histogram) -> Metric:
    for labels, counts in histogram.counts.items():
        names = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(counts)), strict=True))
        family.add_metric(labels, buckets, histogram.sums_s[labels])
    return family
