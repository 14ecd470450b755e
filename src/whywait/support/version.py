"""The version of whywait, where it can be read without a look at what is installed."""

from __future__ import annotations

__version__ = "0.3.0"
