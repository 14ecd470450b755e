"""Where cgroups of version 2 can be made: below the group of this program, or below one that was delegated to it.

A group holds a tree for certain: it can be killed in one step and counts the CPU time of all that was in it. Whether
it also counts memory depends on the group that it is made in.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from whywait.errors import ConfigError
from whywait.trees.system import remove_cgroup

VARIABLE: Final = "WHYWAIT_CGROUPS"
PREFIX: Final = "whywait-"  # of the names of all groups
_PROBE: Final = f"{PREFIX}probe-"
_ALLOWED: Final = ("auto", "off")
_DELEGATED: Final = "user.delegate"  # set by systemd on a group whose inside belongs to a service


def base() -> str:
    """Return the folder in which this program can make cgroups; empty if there is none, or if they are switched off."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in _ALLOWED:
        raise ConfigError(f"{VARIABLE}={wanted!r} is not allowed: use {' or '.join(_ALLOWED)}")
    return "" if wanted == "off" else _base(os.getpid())


@cache
def _base(pid: int) -> str:
    """Return the folder for this program; tried once for a process."""
    own = _own_group()
    if own is None:
        return ""
    for candidate in (*_delegated_above(own), own):
        if _works(candidate / f"{_PROBE}{pid}"):
            remove_left(candidate)
            return str(candidate)
    return ""


def remove_left(base: Path) -> None:
    """Remove the groups in which no process is left: those of programs that were killed with all that guarded them."""
    for group in base.glob(f"{PREFIX}*"):
        probes = group.name.removeprefix(_PROBE)
        if probes == group.name or not Path(f"/proc/{probes}").exists():
            remove_cgroup(str(group))  # one in which a process is stays, by the rules of the system


def _own_group() -> Path | None:
    """Return the folder of this program's group of version 2."""
    try:
        name = next(line.removeprefix("0::") for line in _lines("/proc/self/cgroup") if line.startswith("0::"))
        mounted = next(
            fields[4] for fields in map(str.split, _lines("/proc/self/mountinfo")) if "cgroup2" in fields[6:]
        )
    except (OSError, StopIteration):
        return None
    return Path(mounted) / name.lstrip("/")


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()


def _delegated_above(own: Path) -> list[Path]:
    """Return the nearest group above that was delegated to this program's service, with memory counted inside it."""
    for group in own.parents:
        with suppress(OSError, AttributeError):
            if os.getxattr(group, _DELEGATED) == b"1":
                with suppress(OSError):
                    group.joinpath("cgroup.subtree_control").write_text("+memory", encoding="ascii")
                return [group]
    return []


def _works(probe: Path) -> bool:
    """Return whether a group can be made, entered and killed there."""
    try:
        probe.mkdir()
    except OSError:
        return False
    try:
        return os.access(probe / "cgroup.kill", os.W_OK) and os.access(probe / "cgroup.procs", os.W_OK)
    finally:
        with suppress(OSError):
            probe.rmdir()
