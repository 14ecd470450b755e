"""Finds the cycles in what waits for what, to print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

_MOST: Final = 10  # cycles that are told; the others come up when these are mended


def find_cycles(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return some cycles, each from its first task in file order back to it, in the sense "waits for"."""
    rank = {ident: number for number, ident in enumerate(needs)}
    left = dict(needs)
    cycles: list[list[str]] = []
    while len(cycles) < _MOST:
        sorter = TopologicalSorter({ident: [each for each in needed if each in left] for ident, needed in left.items()})
        try:
            sorter.prepare()
        except CycleError as error:
            around = list(reversed(error.args[1]))[:-1]
            first = around.index(min(around, key=lambda ident: rank[ident]))
            cycles.append([*around[first:], *around[:first], around[first]])
            for ident in around:
                del left[ident]
        else:
            break
    return cycles
