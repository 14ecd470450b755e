"""Long runs: what each has found goes into one JSON file, from which the page on reliability is made."""

import json
import os
import platform
import sys
import time
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "docs" / "reliability.json"


def pytest_addoption(parser):
    parser.addoption("--scale", type=float, default=1.0, help="how much of a full run to do: 0.1 is a tenth")
    parser.addoption("--seed", type=int, default=None, help="the first seed; another one each time if left out")


@pytest.fixture
def scale(request):
    """Return how much of a full run to do."""
    return request.config.getoption("--scale")


@pytest.fixture
def seed(request):
    """Return the first seed, and print it."""
    given = request.config.getoption("--seed")
    first = time.time_ns() // 1_000_000 % 1_000_000_000 if given is None else given
    print(f"seed {first}")
    return first


@pytest.fixture
def figures(request):
    """Return a dict; what is in it when the test has passed is kept."""
    found = {"scale": request.config.getoption("--scale")}
    yield found
    request.config.stash.setdefault(KEPT, {})[request.node.name] = found


KEPT = pytest.StashKey[dict]()


def pytest_sessionfinish(session, exitstatus):
    """Keep the figures of a run without failures, beside those of other tests and other versions of Python."""
    kept = session.config.stash.get(KEPT, {})
    if exitstatus or not kept:
        return
    runs = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    version = ".".join(map(str, sys.version_info[:2]))
    before = runs.get(version, {}).get("figures", {})
    runs[version] = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "figures": before | kept,
    }
    FILE.write_text(json.dumps(dict(sorted(runs.items())), indent=2) + "\n", encoding="utf-8")
