"""The tasks of sweep.yaml: the shortest round trip through random cities, by simulated annealing."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import whywait


def prepare(out: str) -> None:
    """Make an empty folder for the results."""
    folder = Path(out)
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()


def search(out: str, seed: int, cooling: float, cities: int, steps: int, megabytes: int) -> float:
    """Search once; ``megabytes`` of memory are really taken for the time of it."""
    ballast = bytearray(megabytes * 1_000_000)
    places = random.Random(0)
    points = [(places.random(), places.random()) for _ in range(cities)]
    chance = random.Random(seed)
    trip = list(range(cities))
    length = _length(points, trip)
    heat = 0.5
    for step in range(steps):
        if step % 500 == 0:
            whywait.current().checkpoint()
            print(f"step {step} of {steps}: {length:.3f}")
            ballast[step] = 1
        first, last = sorted(chance.sample(range(cities), 2))
        other = trip[:first] + trip[first : last + 1][::-1] + trip[last + 1 :]
        longer = _length(points, other) - length
        if longer < 0 or chance.random() < math.exp(-longer / heat):
            trip, length = other, length + longer
        heat *= cooling
    result = {"length": length, "seed": seed, "cooling": cooling, "trip": trip}
    (Path(out) / f"{seed}-{cooling}.json").write_text(json.dumps(result), encoding="utf-8")
    return length


def best(out: str) -> None:
    """Tell which search found the shortest trip."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(out).glob("*.json"))]
    results.sort(key=lambda result: result["length"])
    for result in results[:3]:
        print(f"{result['length']:.3f} with seed {result['seed']}, cooling {result['cooling']}")
    (Path(out) / "best.txt").write_text(str(results[0]), encoding="utf-8")


def _length(points: list[tuple[float, float]], trip: list[int]) -> float:
    return sum(math.dist(points[trip[at - 1]], points[trip[at]]) for at in range(len(trip)))
