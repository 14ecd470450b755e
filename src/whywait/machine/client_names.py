"""What people can tell a client by: its process, the one that has started it, and its terminal."""

from __future__ import annotations

from typing import Final

from whywait.support.units import printable
from whywait.trees.system import stat_of

_PTYS: Final = (136, 143)  # the major numbers of pseudo-terminals


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if there is no such process."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def name_of_program(pid: int) -> str:
    """Return what the system calls the program of a process; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return printable(file.read().strip())  # a process may call itself anything
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """Return what a person can tell a client by: its process, the one that has started it, and its terminal."""
    fields = stat_of(pid)
    if not fields:
        return f"process {pid}"
    parent, terminal = int(fields[1]), int(fields[4])
    called = name_of_program(parent)
    number = (terminal & 0xFF) | (terminal >> 12 & 0xFFF00)
    is_pty = _PTYS[0] <= terminal >> 8 & 0xFFF <= _PTYS[1]
    where = f" on pts/{number + ((terminal >> 8 & 0xFFF) - _PTYS[0]) * 256}" if is_pty else ""
    return f"process {pid}{f' of {called} {parent}' if called else ''}{where}"
