"""Measure one thing for one contestant, in this process alone: ``python bench/cell.py '{"work": ..., ...}'``.

Prints a line ``RESULT {json}``: the figures, or why there are none.
"""

from __future__ import annotations

import json
import sys
import traceback

from contestants import load
from contestants.base import NotOffered
from works import WORKS


def main() -> None:
    """Measure what the first argument says."""
    cell = json.loads(sys.argv[1])
    try:
        result = {"figures": WORKS[cell["work"]](load(cell["contestant"]), cell["params"])}
    except NotOffered:
        result = {"error": "not offered"}
    except ModuleNotFoundError as error:
        result = {"error": f"not installed: {error.name}"}
    except Exception as error:  # noqa: BLE001 - whatever a contestant raises is a result
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(f"\nRESULT {json.dumps(result)}", flush=True)


if __name__ == "__main__":
    main()
