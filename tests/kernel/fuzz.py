"""Compare the simulation with the plain model on random workloads until the time is up.

`python tests/kernel/fuzz.py --seconds 60 --seed 1`: on a mismatch it prints the seed, a minimised workload and both
answers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from model.simulate import simulate
from strategies import Seeded, make_workload
from whywait import ConfigError, Simulation

Workload = dict[str, Any]

REQUIRED = ("id", "at_ms", "duration_ms", "do")


def difference(workload: Workload) -> str | None:
    """What the two disagree about, or None."""
    expected = simulate(workload)
    try:
        result = Simulation(workload).run().to_dict()
    except ConfigError:
        raise
    except Exception:  # noqa: BLE001 (whatever it is, it is a finding)
        return f"the simulation raised\n{traceback.format_exc()}"
    for part in ("events", "final"):
        if result[part] != expected[part]:
            return f"{part}\n  simulation {json.dumps(result[part])}\n  model      {json.dumps(expected[part])}"
    return None


def minimise(workload: Workload, fails: Callable[[Workload], bool]) -> Workload:
    """Take away whatever the failure does not need, until nothing more can go."""
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in smaller_ones(workload):
            if fails(smaller):
                workload, shrunk = smaller, True
                break
    return workload


def smaller_ones(workload: Workload) -> Iterator[Workload]:
    """Every workload that lacks one thing of this one, or has one number smaller."""
    for path in paths(workload):
        *outer, last = path
        value = at(workload, path)
        if last not in REQUIRED and path not in (["tasks"], ["ops"], ["config"]):
            smaller = deepcopy(workload)
            del at(smaller, outer)[last]
            yield smaller
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            for number in sorted({0, 1, value // 2, value - 1} - {value}):
                smaller = deepcopy(workload)
                at(smaller, outer)[last] = number
                yield smaller


def paths(value: Any) -> Iterator[list[Any]]:
    """The way to every part, outer parts first."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield [key]
    for key in keys:
        for rest in paths(value[key]):
            yield [key, *rest]


def at(workload: Any, path: list[Any]) -> Any:
    for key in path:
        workload = workload[key]
    return workload


def still_fails(workload: Workload) -> bool:
    try:
        return difference(workload) is not None
    except (ConfigError, KeyError):  # it is no workload any more
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    seed = first = arguments.seed
    stop_at = time.monotonic() + arguments.seconds
    while time.monotonic() < stop_at:
        workload = make_workload(Seeded(seed))
        if difference(workload) is not None:
            small = minimise(workload, still_fails)
            print(f"seed {seed}\n{json.dumps(small, ensure_ascii=False)}\n{difference(small)}")
            return 1
        seed += 1
    print(f"{seed - first} workloads from seed {first} on: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
