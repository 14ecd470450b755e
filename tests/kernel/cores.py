"""Which core runs: the compiled one, or the same files interpreted."""

from __future__ import annotations

from pathlib import Path

import pytest

from whywait.kernel import model

COMPILED = Path(model.__file__).suffix != ".py"

# For tests that count the calls of functions, or put others in their place: compiled ones call each other directly.
interpreted = pytest.mark.skipif(COMPILED, reason="looks into functions, which are compiled here")
