"""Metrics: the scheduler's counters as JSON, or as Prometheus text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from whywait.devtools.feed import Feed
from whywait.devtools.histograms import BOUNDS_S, Histogram


def wants_json(accept: str) -> bool:
    """Return whether an Accept header asks for JSON rather than for text."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return "application/json" in kinds and not any(
        kind.startswith(("text/", "application/openmetrics")) for kind in kinds
    )


class JsonMetric(NamedTuple):
    """One number, or table of numbers, of the JSON form."""

    about: str
    value: Callable[[dict[str, Any], dict[str, Any], Feed], Any]  # of the counters, the picture of now, the feed


JSON_METRICS: Final = {
    "enabled": JsonMetric("whether the run goes on", lambda _, __, feed: not feed.finished),
    "activeCount": JsonMetric("tasks that hold a slot", lambda stats, _, __: stats["active"]),
    "queuedCount": JsonMetric("living tasks that hold no slot", lambda stats, _, __: stats["queued"]),
    "totalSubmitted": JsonMetric("tasks accepted", lambda stats, _, __: stats["submitted"]),
    "totalCompleted": JsonMetric("tasks ended, however", lambda stats, _, __: stats["completed"]),
    "starvationPromotions": JsonMetric(
        "aging steps gained by tasks that left READY", lambda stats, _, __: stats["starvation_promotions"]
    ),
    "starvedCount": JsonMetric(
        "READY tasks that a higher priority starves", lambda _, now, __: now["counts"]["starved"]
    ),
    "totalRetried": JsonMetric("attempts after the first", lambda stats, _, __: stats["retried"]),
    "byOutcome": JsonMetric("tasks ended, by outcome", lambda stats, _, __: stats["by_outcome"]),
    "droppedByCause": JsonMetric("tasks dropped, by cause", lambda stats, _, __: stats["dropped"]),
    "rejectedByCause": JsonMetric("submissions refused, by cause", lambda stats, _, __: stats["rejected"]),
    "waitNsByCause": JsonMetric(
        "waiting of tasks that have started, by cause, in ns", lambda stats, _, __: stats["wait_ns_by_cause"]
    ),
    "waitNs": JsonMetric(
        "quantiles of the wait of the tasks started last, in ns", lambda stats, _, __: stats["wait_ns"]
    ),
}


def json_metrics(stats: dict[str, Any], picture: dict[str, Any], feed: Feed) -> dict[str, Any]:
    """Return the metrics as a JSON-ready dict."""
    return {"scheduler": {name: metric.value(stats, picture, feed) for name, metric in JSON_METRICS.items()}}


def prometheus_metrics(accept: str, stats: dict[str, Any], picture: dict[str, Any], feed: Feed) -> tuple[bytes, str]:
    """Return the metrics as text, in the dialect that is accepted, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(stats, picture, feed))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


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
        picture, label = self._picture, self._feed.histograms.scope_label
        yield GaugeMetricFamily("whywait_tasks_running", "Tasks that hold a slot.", value=picture["counts"]["running"])
        starved = picture["counts"]["starved"]
        yield GaugeMetricFamily("whywait_tasks_starving", "READY tasks that a higher priority starves.", value=starved)
        lanes: dict[tuple[str, str, str], int] = {}
        for lane in picture["lanes"]:
            key = (str(lane["priority"]), label(lane["scope"]), lane["waits_for"])
            lanes[key] = lanes.get(key, 0) + lane["length"]
        ready = GaugeMetricFamily(
            "whywait_tasks_ready", "Tasks in lanes, by what they wait for.", labels=("priority", "scope", "reason")
        )
        for key, count in lanes.items():
            ready.add_metric(key, count)
        yield ready
        not_ready = picture["counts"]["not_ready"]
        yield GaugeMetricFamily("whywait_tasks_not_ready", "Pending tasks that are in no lane.", value=not_ready)
        limit = GaugeMetricFamily("whywait_budget_limit", "What may be in use at once.", labels=("resource",))
        used = GaugeMetricFamily("whywait_budget_used", "What is in use.", labels=("resource",))
        for gate in (picture["slots"], *picture["budget"]):
            if gate["limit"] is not None:
                limit.add_metric((gate["name"],), gate["limit"])
                used.add_metric((gate["name"],), gate["limit"] - gate["free"])
        yield limit
        yield used


def _filled(family: HistogramMetricFamily, histogram: Histogram) -> Metric:
    for labels, counts in histogram.counts.items():
        names = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(counts)), strict=True))
        family.add_metric(labels, buckets, histogram.sums_s[labels])
    return family
