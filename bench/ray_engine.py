"""What the Ray engine costs: no-op tasks through whywait against bare Ray, in one process and one cluster.

One task of whywait is one task of Ray, so the first rows compare the same work; the last one is what chunks gain.

Rounds of all contestants alternate, so that whatever else the machine does hits all of them. Prints the median rate of
each, and the median of its ratios to bare Ray in the same round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

from whywait import Authority


def noop(value: int) -> int:
    """Do nothing."""
    return value


def bare(count: int) -> None:
    """Submit to Ray and collect."""
    remote = ray.remote(max_retries=0)(noop)
    assert ray.get([remote.remote(i) for i in range(count)])[-1] == count - 1


def one_by_one(authority: Authority) -> Callable[[int], None]:
    """Return a contestant that submits each call as a task and collects."""

    def run(count: int) -> None:
        handles = [authority.submit(noop, i) for i in range(count)]
        assert [handle.result() for handle in handles][-1] == count - 1

    return run


def in_chunks(authority: Authority, chunksize: int) -> Callable[[int], None]:
    """Return a contestant that maps the calls in chunks."""

    def run(count: int) -> None:
        assert list(authority.map(noop, range(count), chunksize=chunksize))[-1] == count - 1

    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--chunksize", type=int, default=50)
    options = parser.parse_args()
    ray.init(num_cpus=2, object_store_memory=200 * 2**20, include_dashboard=False, log_to_driver=False)
    many = Authority(engine="ray", events=0, slots=options.slots)
    few = Authority(engine="ray", events=0)
    contestants = {
        "bare Ray": bare,
        f"whywait, {options.slots} slots": one_by_one(many),
        "whywait, a slot for each CPU": one_by_one(few),
        f"whywait, map(chunksize={options.chunksize})": in_chunks(few, options.chunksize),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run(200)
    for _ in range(options.rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            run(options.tasks)
            rates[name].append(options.tasks / (time.perf_counter() - began))
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the end, Ray {ray.__version__}")
    for name, measured in rates.items():
        ratio = statistics.median(own / bare for own, bare in zip(measured, rates["bare Ray"], strict=True))
        print(f"{name:32} {statistics.median(measured):8.0f} tasks/s   {ratio:6.2f} of bare Ray")
    for authority in (many, few):
        authority.dispose()
    ray.shutdown()


if __name__ == "__main__":
    main()
