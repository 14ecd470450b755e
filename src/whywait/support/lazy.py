"""Modules that are loaded when they are first used, so that ``import whywait`` takes a fraction of the time."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Lazy:
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


if TYPE_CHECKING:
    import asyncio
    import difflib
    import fractions
    import pickle
else:
    asyncio = _Lazy("asyncio")
    difflib = _Lazy("difflib")
    fractions = _Lazy("fractions")
    pickle = _Lazy("pickle")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that this thread runs; none can be running while asyncio is not loaded."""
    look: Any = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)  # None while it is being loaded, too
    loop: asyncio.AbstractEventLoop | None = look() if look is not None else None
    return loop


__all__ = ["asyncio", "difflib", "fractions", "pickle", "running_loop"]
