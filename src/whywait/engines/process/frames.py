"""Frames: how the process engine and its child processes talk over pipes.

A frame is a head (length of the payload, kind) and the payload. A child gets one TASK frame at a time and answers
it with one VALUE or ERROR frame; before that it may send any number of the other kinds. A SETUP frame may come before
the first task: what to call once. If that fails, the child sends BROKEN and ends. A child that cannot begin sends
REFUSED and ends, and has seen nothing of its task. A KEY frame may come before any task. A TASK payload is the head
:data:`TASK`, then the label, the pickled function (absent if the child keeps it already) and the pickled arguments
(absent if there are none). Imports nothing but the standard library: a child process starts with it.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

HEAD: Final = Struct("<QB")  # length of the payload, kind
TASK: Final = Struct("<QQQQB")  # task number, length of the label, function number, length of the function, flags
TASK_FRAME: Final = Struct(HEAD.format + TASK.format[1:])  # both heads in one
USE: Final = Struct("<QQ")  # CPU time in ns, peak of the memory of the process in bytes
PARK: Final = Struct("<Q")  # the number of the pause for which the body has parked

KIND_TASK: Final = 0
KIND_VALUE: Final = 1
KIND_ERROR: Final = 2
KIND_PARKED: Final = 3  # this and those below come before the answer, in any number
KIND_EMIT: Final = 4  # a chunk: name of the stream, pickled chunk
KIND_ASK: Final = 5  # for room in a stream: its name, for how many chunks
KIND_NOTE: Final = 6  # an event: its kind and details, pickled
KIND_CALL: Final = 7  # a question: its number and what is asked, pickled
KIND_USE: Final = 8  # what a body has used, see USE
KIND_BROKEN: Final = 9  # instead of any answer: the initializer has failed, as an ERROR tells it
KIND_SETUP: Final = 10  # to the child: the initializer and its arguments, pickled
KIND_KEY: Final = 11  # to the child: with what the processes of ``multiprocessing`` know each other
KIND_REFUSED: Final = 12  # instead of any answer: the system gives the process no thread to listen with

FORGET: Final = 1  # flag of a task: forget the functions kept so far
PATHS: Final = 2  # flag of a task: where the function stands comes a pickled pair, a new sys.path and the function

HIRED: Final = 4  # flag of a task: it is a worker of a task that runs elsewhere
LENT: Final = 8  # flag of a task: lazy resources are among its arguments

RESULT_NOT_PICKLED: Final = "its result could not be pickled"  # one of the stages that an ERROR names

_BLOCK: Final = 8192
ONE_WRITE: Final = 65536  # longer payloads are not copied behind their head


class FrameError(Exception):
    """What was read is no frame: something else wrote into the pipe."""


class Reader:
    """Reads frames from a pipe; what was read ahead waits for the next call."""

    __slots__ = ("_ahead", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ahead = b""

    def read(self) -> tuple[int, bytes | bytearray]:
        """Return kind and payload of the next frame; raise EOFError if the other side is gone."""
        data = self._ahead or os.read(self._fd, _BLOCK)
        while len(data) < HEAD.size:
            more = os.read(self._fd, _BLOCK)
            if not more:
                raise EOFError
            data += more
        length, kind = HEAD.unpack_from(data)
        if kind > KIND_REFUSED:
            raise FrameError(f"a frame of kind {kind}")
        end = HEAD.size + length
        if len(data) >= end:
            self._ahead = data[end:]
            return kind, data[HEAD.size : end]
        self._ahead = b""
        return kind, self._read_long(data[HEAD.size :], length)

    def _read_long(self, start: bytes, length: int) -> bytearray:
        payload = bytearray(length)
        payload[: len(start)] = start
        have = len(start)
        with memoryview(payload) as view:
            while have < length:
                count = os.readv(self._fd, [view[have:]])
                if not count:
                    raise EOFError
                have += count
        return payload


def frame(kind: int, payload: bytes) -> bytes:
    """Return a whole frame."""
    return HEAD.pack(len(payload), kind) + payload


def write_frame(fd: int, kind: int, payload: bytes) -> None:
    """Write a whole frame; BrokenPipeError if the other end is closed."""
    head = HEAD.pack(len(payload), kind)
    if len(payload) < ONE_WRITE:
        write_all(fd, head + payload)
    else:
        write_all(fd, head)
        write_all(fd, payload)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, in as many steps as the pipe wants."""
    done = os.write(fd, data)
    if done < len(data):
        with memoryview(data) as view:
            while done < len(data):
                done += os.write(fd, view[done:])


def pack_named(name: str, data: bytes) -> bytes:
    """Put a name before some data."""
    text = name.encode(errors="surrogatepass")
    return len(text).to_bytes(4, "little") + text + data


def unpack_named(payload: bytes | bytearray) -> tuple[str, bytes]:
    """Return what :func:`pack_named` took."""
    end = 4 + int.from_bytes(payload[:4], "little")
    return payload[4:end].decode(errors="surrogatepass"), bytes(payload[end:])
