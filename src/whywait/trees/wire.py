"""Messages between a program and its guards, and between a guard and the child process that it has forked."""

from __future__ import annotations

import marshal
import struct

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any

HEAD = struct.Struct("!I")  # the length of a message on a line
PART_SIZE = 4096
FDS_AT_MOST = 250

SESSION, GROUP = -1, 0  # a child process leads a session or a process group of its own; above 0: a group to join


def packed(message: Any) -> bytes:  # noqa: ANN401 - any message
    """Return a message as it travels."""
    data = marshal.dumps(message)
    return HEAD.pack(len(data)) + data


def has_message(buffer: bytearray) -> bool:
    """Return whether the first message in a buffer has come as a whole."""
    return len(buffer) >= HEAD.size and len(buffer) >= HEAD.size + HEAD.unpack_from(buffer)[0]


def take_message(buffer: bytearray) -> Any:  # noqa: ANN401 - any message
    """Remove the first message from a buffer and return it."""
    end = HEAD.size + HEAD.unpack_from(buffer)[0]
    message = marshal.loads(buffer[HEAD.size : end])  # noqa: S302 - from our own program
    del buffer[:end]
    return message
