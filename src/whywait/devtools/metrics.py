"""Metrics: the counters of the scheduler as JSON or as Prometheus text, and histograms counted from its events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import getitem
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from whywait.kernel.events import Kind
from whywait.observe.fold import Attempt
from whywait.support.units import NS_PER_S

JSON_KINDS: Final = ("application/json",)
TEXT_KINDS: Final = ("text/plain", "application/openmetrics-text")
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
KNOWN_SCOPES: Final = 50  # then further scopes are counted together: labels are for ever
OTHER: Final = "(other)"
OBSERVED: Final = frozenset({Kind.TASK_STARTED, Kind.TASK_FINISHED, Kind.TASK_CANCELLED})

Labels = tuple[str, ...]


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


class Metric(NamedTuple):
    """One number, or table of numbers: what it says, where it comes from, and its names in JSON and Prometheus."""

    about: str
    source: str | Callable[[dict[str, Any]], Any]  # where it is in `stats()`, or how it is made of the picture of now
    in_json: str = ""
    family: str = ""  # of Prometheus; one that ends in _seconds is in seconds
    label: str = ""  # of the keys of a table
    gauge: bool = False  # else it is a counter

    @property
    def help(self) -> str:
        """What it says, as a sentence."""
        return f"{self.about[0].upper()}{self.about[1:]}."

    def value(self, stats: dict[str, Any], picture: dict[str, Any]) -> Any:  # noqa: ANN401 - a number or a table
        """Return the number or the table."""
        return reduce(getitem, self.source.split("."), stats) if isinstance(self.source, str) else self.source(picture)

    def as_family(self, stats: dict[str, Any], picture: dict[str, Any]) -> Family:
        """Return it for Prometheus."""
        make = GaugeMetricFamily if self.gauge else CounterMetricFamily
        value, unit = self.value(stats, picture), NS_PER_S if self.family.endswith("_seconds") else 1
        if not self.label:
            return make(f"whywait_{self.family}", self.help, value=value / unit)
        family = make(f"whywait_{self.family}", self.help, labels=(self.label,))
        for key, each in value.items():
            family.add_metric((key,), each / unit)
        return family


_OF_UNIT: Final = ("kind", "name", "size", "used", "present", "holders_total")

METRICS: Final = (
    Metric("whether slots are bounded", lambda now: now["slots"]["limit"] is not None, "enabled"),
    Metric("tasks that run, with a slot or without", "active", "activeCount", "tasks_running", gauge=True),
    Metric("READY tasks", "queued", "queuedCount"),
    Metric("pending tasks that are in no lane", "not_ready", "notReadyCount", "tasks_not_ready", gauge=True),
    Metric("tasks accepted", "submitted", "totalSubmitted", "tasks_submitted"),
    Metric("tasks ended, however", "completed", "totalCompleted"),
    Metric(
        "aging steps gained by tasks that left READY",
        "starvation_promotions",
        "starvationPromotions",
        "starvation_promotions",
    ),
    Metric(
        "READY tasks that a higher priority starves", "starvation.now", "starvedCount", "tasks_starving", gauge=True
    ),
    Metric(
        "the longest starvation of any task so far",
        "starvation.longest_ns",
        "starvationLongestNs",
        "starvation_longest_seconds",
        gauge=True,
    ),
    Metric("the starvation of all tasks so far", "starvation.total_ns", "starvationTotalNs", "starvation_seconds"),
    Metric("tasks starved beyond the timeout", "starved", family="tasks_starved"),
    Metric(
        "units of devices: kind, name, memory, how much of it is used, how many tasks are on it",
        lambda now: [{key: unit[key] for key in _OF_UNIT} for unit in now["devices"]],
        "devices",
    ),
    Metric("attempts after the first", "retried", "totalRetried", "tasks_retried"),
    Metric("tasks ended, by outcome", "by_outcome", "byOutcome", "tasks_completed", "outcome"),
    Metric("tasks dropped, by cause", "dropped", "droppedByCause", "tasks_dropped", "reason"),
    Metric("submissions refused, by cause", "rejected", "rejectedByCause", "tasks_rejected", "reason"),
    Metric(
        "waiting of tasks that have started, by cause", "wait_ns_by_cause", "waitNsByCause", "waited_seconds", "reason"
    ),
    Metric("quantiles of the wait of the tasks started last", "wait_ns", "waitNs"),
)


def json_metrics(stats: dict[str, Any], picture: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics as a JSON-ready dict."""
    return {"scheduler": {each.in_json: each.value(stats, picture) for each in METRICS if each.in_json}}


def prometheus_metrics(accept: str, families: Iterable[Family]) -> tuple[bytes, str]:
    """Return the metrics as text, in the dialect that is accepted, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(lambda: families))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


class RunCollector(Collector):
    """The metrics of a run for a registry of the user's: ``REGISTRY.register(tools.collector)``."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        """Ask ``families`` whenever the registry is read."""
        self._families = families

    def collect(self) -> Iterable[Family]:
        """Return every metric; none when the run is over."""
        return self._families()


def families_of(
    stats: dict[str, Any], picture: dict[str, Any], histograms: Histograms, skipped: int
) -> Iterator[Family]:
    """Yield every metric for Prometheus, as it is at one moment; ``skipped`` events were never seen."""
    yield from (metric.as_family(stats, picture) for metric in METRICS if metric.family)
    yield CounterMetricFamily("whywait_devtools_events_skipped", "Events that DevTools missed.", value=skipped)
    yield _ready(stats, picture, histograms)
    yield from _budget(picture)
    yield from _devices(picture)
    yield from histograms.collect()


def _ready(stats: dict[str, Any], picture: dict[str, Any], histograms: Histograms) -> Family:
    lanes: dict[Labels, int] = {}
    for lane in picture["lanes"]:
        key = (str(lane["priority"]), histograms.scope_label(lane["scope"]), lane["waits_for"])
        lanes[key] = lanes.get(key, 0) + lane["length"]
    beyond = stats["queued"] - sum(lanes.values())  # the picture has the first lanes only
    if beyond:
        lanes[OTHER, OTHER, OTHER] = beyond
    ready = GaugeMetricFamily(
        "whywait_tasks_ready", "Tasks in lanes, by what they wait for.", labels=("priority", "scope", "reason")
    )
    for labels, count in lanes.items():
        ready.add_metric(labels, count)
    return ready


def _budget(picture: dict[str, Any]) -> Iterator[Family]:
    limit = GaugeMetricFamily("whywait_budget_limit", "What may be in use at once.", labels=("resource",))
    used = GaugeMetricFamily("whywait_budget_used", "What is in use.", labels=("resource",))
    for gate in ({**picture["slots"], "name": "slots"}, *picture["budget"]):
        if gate["limit"] is not None:
            limit.add_metric((gate["name"],), gate["limit"])
            used.add_metric((gate["name"],), gate["limit"] - gate["free"])
    yield limit
    yield used


def _devices(picture: dict[str, Any]) -> Iterator[Family]:
    for name, text, field in (
        ("memory_bytes", "Memory of a unit; 0 if it has none to share.", "size"),
        ("memory_used_bytes", "Memory that tasks on a unit have asked for.", "used"),
        ("tasks", "Tasks on a unit.", "holders_total"),
        ("present", "1 if the unit is there, 0 if it is gone.", "present"),
    ):
        family = GaugeMetricFamily(f"whywait_device_{name}", text, labels=("kind", "unit"))
        for unit in picture["devices"]:
            family.add_metric((unit["kind"], unit["name"]), int(unit[field]))
        yield family


class Histograms:
    """Waits by priority and scope; run times by priority, scope and outcome."""

    LABELS: Final = {
        "whywait_task_wait_seconds": ("priority", "scope"),
        "whywait_task_run_seconds": ("priority", "scope", "outcome"),
    }

    def __init__(self) -> None:
        """Start empty."""
        self._waits = _histogram("whywait_task_wait_seconds", "Time from submission to start.")
        self._runs = _histogram("whywait_task_run_seconds", "Time from start to end.")
        self._scopes: set[str] = set()

    def scope_label(self, key: str) -> str:
        """Return the scope's key, or a common name for all scopes after the first fifty."""
        if key not in self._scopes:
            if len(self._scopes) >= KNOWN_SCOPES:
                return OTHER
            self._scopes.add(key)
        return key

    def observe(self, kind: str, row: Attempt) -> None:
        """Count what an event of this kind has ended: a wait or a run."""
        if row.started_ns is None:
            return
        labels = (str(row.priority), self.scope_label(row.scope))
        if kind == Kind.TASK_STARTED:
            self._waits.labels(*labels).observe((row.started_ns - row.submitted_ns) / NS_PER_S)
        elif row.ended_ns is not None:
            self._runs.labels(*labels, row.outcome or "").observe((row.ended_ns - row.started_ns) / NS_PER_S)

    def collect(self) -> Iterator[Family]:
        """Yield both for Prometheus, without the samples of when each was made."""
        for family in (*self._waits.collect(), *self._runs.collect()):
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def _histogram(name: str, about: str) -> Histogram:
    return Histogram(name, about, Histograms.LABELS[name], buckets=BOUNDS_S, registry=None)
