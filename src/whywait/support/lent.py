"""Variables that come before the environment of this process in one context: what a block of Python was lent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

NOTHING: Final[Mapping[str, str]] = {}
lent: Final[ContextVar[Mapping[str, str]]] = ContextVar("whywait_lent", default=NOTHING)


def environment() -> Mapping[str, str]:
    """Return the environment as this context sees it."""
    variables = lent.get()
    return {**os.environ, **variables} if variables else os.environ
