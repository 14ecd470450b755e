"""Random runs, told event by event: what the compiled core and the interpreted one are compared by.

`python tests/kernel/runs.py --interpreted 0 100` loads the ``.py`` files, whatever stands beside them.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path

STEPS = 60


def prefer_sources() -> None:
    """Have a module be found as a ``.py`` first, before one that is compiled from it."""
    loaders = (SourceFileLoader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES)
    sys.path_hooks.insert(0, FileFinder.path_hook(*loaders))
    sys.path_importer_cache.clear()


def told(first: int, last: int) -> list[str]:
    """Return the events of random commands and of random workloads of these seeds, as text."""
    from commands import drive
    from strategies import Seeded, make_workload
    from whywait import Simulation

    runs = []
    for seed in range(first, last):
        kinds: list[dict[str, bool]] = [{}, {"devices": True}, {"blocks": True}, {"stops": True}]
        pairs = [drive(Seeded(seed), STEPS, **kind) for kind in kinds]
        runs += [repr(pair.raw_events) for pair in pairs]
        runs.append(repr(Simulation(make_workload(Seeded(seed))).run().to_dict()))
    return runs


def main() -> None:
    """Print the runs, one a line, behind the file that the core is loaded from."""
    *flags, first, last = sys.argv[1:]
    if "--interpreted" in flags:
        prefer_sources()
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent / "helpers")]
    from whywait.kernel import model

    print(model.__file__, *told(int(first), int(last)), sep="\n")


if __name__ == "__main__":
    main()
