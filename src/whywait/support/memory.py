"""How much memory there is: that of the machine, or of the container that this program runs in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from whywait.errors import ConfigError

_SHARE: Final = (9, 10)  # of the memory: what ``ram="auto"`` stands for


def automatic_ram(name: str = "ram") -> int:
    """Return nine tenths of the memory, in bytes, which ``ram="auto"`` stands for (U4)."""
    memory = total_memory()
    if memory is None:
        raise ConfigError(f'{name}: "auto" is not possible: this system does not tell its memory; give a size')
    return memory * _SHARE[0] // _SHARE[1]


def total_memory() -> int | None:
    """Return how much memory there is, in bytes; None where the system does not tell."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return min([pages * size, *_limits_of_container()]) if pages > 0 and size > 0 else None


def _limits_of_container(proc: Path = Path("/proc/self"), mount: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the limits of memory of the cgroups of this program, of either version, as far as they are told."""
    found = []
    try:
        lines = proc.joinpath("cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            folders, file = [mount, mount / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            folders, file = [mount / "memory"], "memory.limit_in_bytes"
        else:
            continue
        inside = Path(name.lstrip("/"))
        for folder in folders:
            for group in (inside, *inside.parents):
                try:
                    text = folder.joinpath(group, file).read_text(encoding="ascii").strip()
                except (OSError, UnicodeDecodeError):
                    continue
                if text.isdecimal():
                    found.append(int(text))
    return found
