"""Seeds of random runs that failed once: kept as files, run again by every test run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands import drive
from fuzz import difference
from strategies import Seeded, make_workload

FOLDER = Path(__file__).parent / "seeds"
STEPS = 60


def run_commands(seed: int, steps: int = STEPS) -> None:
    """Random commands to the kernel and to the model, compared after each."""
    drive(Seeded(seed), steps)


def run_workload(seed: int) -> None:
    """A random workload, simulated and worked out by the model."""
    found = difference(make_workload(Seeded(seed)))
    assert found is None, found


KINDS = {"commands": run_commands, "workload": run_workload}


def keep(kind: str, seed: int, **rest: Any) -> Path:
    """Keep a seed that failed; return its file."""
    path = FOLDER / f"{kind}-{seed}.json"
    path.write_text(json.dumps({"kind": kind, "seed": seed, **rest}) + "\n", encoding="utf-8")
    return path


def kept() -> list[dict[str, Any]]:
    """Return all that were kept."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def run_again(entry: dict[str, Any]) -> None:
    """Run a seed that was kept."""
    rest = {key: value for key, value in entry.items() if key not in {"kind", "seed"}}
    KINDS[entry["kind"]](entry["seed"], **rest)
