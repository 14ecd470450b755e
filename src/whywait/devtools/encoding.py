"""JSON and server-sent events, encoded in small steps.

The C encoder of JSON lets no other thread run until it is done. So whatever may be long is encoded piece by piece, with
the interpreter free for the tasks' threads in between: none of them waits longer than a fraction of a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from time import sleep
from typing import Any, Final, TypeVar

T = TypeVar("T")
SLICE: Final = 16  # items, which take some 50 us
PAUSE_S: Final = 1e-6  # not 0: then the interpreter may be taken back before another thread has woken up

encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
quote: Final = json.encoder.encode_basestring_ascii


def slices(items: list[T]) -> Iterator[list[T]]:
    """Yield a list in short parts; between two of them other threads get the interpreter."""
    for begin in range(0, len(items), SLICE):
        if begin:
            sleep(PAUSE_S)
        yield items[begin : begin + SLICE]


def encode_in_steps(data: dict[str, Any]) -> str:
    """Return a JSON object that may hold long lists."""
    return "{" + ",".join(f"{quote(key)}:{_encode_value(value)}" for key, value in data.items()) + "}"


def _encode_value(value: object) -> str:
    if not isinstance(value, list):
        return encode(value)
    return "[" + ",".join(encode(some)[1:-1] for some in slices(value)) + "]"


def frame(seq: int | None, data: dict[str, Any], kind: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = (f"id: {seq}\n" if seq is not None else "") + (f"event: {kind}\n" if kind else "")
    return f"{head}data: {encode(data)}\n\n".encode()
