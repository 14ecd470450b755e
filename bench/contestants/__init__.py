"""The contestants by name; each is imported only in the process that measures it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from contestants.base import Contestant

_WHERE: Final = {
    "whywait": "ours:Whywait",
    "whywait-executor": "ours:WhywaitExecutor",
    "whywait-process": "ours:WhywaitProcess",
    "whywait-asyncio": "ours:WhywaitAsyncio",
    "threadpool": "standard:ThreadPool",
    "processpool": "standard:ProcessPool",
    "graphlib": "standard:Graphlib",
    "hand": "hand:HandWritten",
    "bare": "hand:Bare",
    "taskgroup": "standard:TaskGroup",
    "trio": "loops:Trio",
    "anyio": "loops:AnyioThreads",
    "joblib": "batches:Joblib",
    "dask": "batches:DaskThreads",
    "distributed": "clusters:Distributed",
    "parsl": "clusters:ParslThreads",
    "parsl-quiet": "clusters:ParslQuiet",
    "ray": "clusters:Ray",
    "apscheduler": "timers:APScheduler",
}
OURS: Final = ("whywait", "whywait-executor", "whywait-process", "whywait-asyncio")
SLOW: Final = (
    "dask",
    "distributed",
    "parsl",
    "parsl-quiet",
    "ray",
)  # a thousandth of a second for a task: they get fewer
PACKAGES: Final = ("anyio", "apscheduler", "dask", "distributed", "joblib", "parsl", "ray", "trio")


def load(name: str) -> Contestant:
    """Import a contestant and return it."""
    module, _, kind = _WHERE[name].partition(":")
    contestant: Contestant = getattr(import_module(f"contestants.{module}"), kind)()
    return contestant


TITLES: Final = {
    "whywait": "whywait",
    "whywait-executor": "whywait.Executor",
    "whywait-process": "whywait, processes",
    "whywait-asyncio": "whywait, coroutines",
    "threadpool": "ThreadPoolExecutor",
    "processpool": "ProcessPoolExecutor",
    "graphlib": "graphlib + ThreadPoolExecutor",
    "hand": "hand-written PriorityQueue pool",
    "bare": "bare threads, no scheduler",
    "taskgroup": "asyncio.TaskGroup + Semaphore",
    "trio": "trio + CapacityLimiter",
    "anyio": "anyio threads + CapacityLimiter",
    "joblib": "joblib threading",
    "dask": "dask threads",
    "distributed": "dask.distributed threads",
    "parsl": "Parsl threads",
    "parsl-quiet": "Parsl threads, its log off",
    "ray": "Ray local",
    "apscheduler": "APScheduler",
}
