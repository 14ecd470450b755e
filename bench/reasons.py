"""Why a row is lost, in words: by kind of work, or by kind of work and figure. The page adds them where they apply."""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[str, str]] = {}


def reason(work: str, figure: str) -> str:
    """Return why whywait loses a row."""
    return REASONS.get(f"{work}: {figure}") or REASONS.get(work) or "no reason found yet"
