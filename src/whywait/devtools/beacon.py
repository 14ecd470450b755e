"""Beacons: where a served run leaves its address, so that commands of the same user find it without a URL.

One small file for each server, in a folder that only this user can read, because the address holds the token.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from whywait.errors import ConfigError


class Beacon(NamedTuple):
    """A served run: its address, what was started, and its process."""

    url: str
    file: str
    name: str
    pid: int


def folder() -> Path:
    """Return the folder of the beacons, which may not be there; one that is somebody else's is refused."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = Path(base) / "whywait" if base else Path(tempfile.gettempdir()) / f"whywait-{user}"
    with contextlib.suppress(FileNotFoundError):
        facts = path.lstat()
        if not stat.S_ISDIR(facts.st_mode) or (hasattr(os, "getuid") and facts.st_uid != user):
            raise ConfigError(f"{path} belongs to somebody else: set XDG_RUNTIME_DIR to a folder of your own")
    return path


def light(url: str, name: str, file: str | None = None) -> Path | None:
    """Leave the address of a server; return the file, or None where nothing can be left."""
    started = file if file is not None else getattr(sys.modules.get("__main__"), "__file__", None) or ""
    pid = os.getpid()
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder() / f"{pid}-{url.rpartition(':')[2].partition('/')[0]}.json"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as beacon:
            json.dump(Beacon(url, str(Path(started).resolve()) if started else "", name, pid)._asdict(), beacon)
    except (OSError, ConfigError):
        return None  # it is a convenience; the address was printed
    return path


def put_out(path: Path) -> None:
    """Take an address away, and the folder with the last one."""
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()


def find(target: str | None) -> Beacon:
    """Return the served run of a started file, or the only one there is."""
    lit = living()
    if target is not None:
        wanted = str(Path(target).resolve())
        lit = [beacon for beacon in lit if beacon.file == wanted or beacon.name == target]
    if len(lit) == 1:
        return lit[0]
    what = f"of {target!r} " if target is not None else ""
    if not lit:
        raise ConfigError(f"no served run {what}was found: start it with --devtools, or give its URL")
    choices = ", ".join(f"{beacon.file or beacon.name} (process {beacon.pid})" for beacon in lit)
    raise ConfigError(f"{len(lit)} served runs {what}were found: {choices}; give the URL of one")


def living() -> list[Beacon]:
    """Return the beacons of processes that are alive, and remove the others."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            beacon = Beacon(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if _is_alive(beacon.pid):
            found.append(beacon)
        else:
            put_out(path)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
