"""The garbage collector, and what need not concern it.

A task that the kernel keeps alive cannot be garbage, so the compiled core takes it out of the collector's sight until
its end: with a million tasks waiting, a collection costs no more than with none. Interpreted there is no way to do
that, and nothing depends on it.
"""

from __future__ import annotations

from typing import Final

_IS_COMPILED: Final = not __file__.endswith(".py")


def hide(thing: object) -> None:
    """Let the garbage collector look at a thing no more: something that it can see keeps the thing alive."""
    if _IS_COMPILED:
        PyObject_GC_UnTrack(thing)  # type: ignore[name-defined]


def show(thing: object) -> None:
    """Let the garbage collector look at a thing again."""
    if _IS_COMPILED and not PyObject_GC_IsTracked(thing):  # type: ignore[name-defined]
        PyObject_GC_Track(thing)  # type: ignore[name-defined]
