"""Beacons: where a served run leaves its address, so that commands of the same user find it without a URL.

One small file for each server, in a folder that only this user can read, because the address holds the token. A server
without a port has a Unix socket beside its file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from whywait.errors import ConfigError
from whywait.support.fits import check_of
from whywait.support.units import printable

MOST_BYTES: Final = 100_000
MOST_PID: Final = 2**31 - 1
UNIX: Final = "unix://"
LONGEST_URL: Final = 1_000  # characters; a server that announces itself has a short one
LONGEST_SOCKET: Final = 100  # bytes of its path, as far as systems agree


class Beacon(NamedTuple):
    """A served run: its address, the file that was started, its name and its process."""

    url: str
    file: str
    name: str
    pid: int

    @property
    def address(self) -> str:
        """The address without its token."""
        return self.url.partition("#")[0].rstrip("/")

    @property
    def token(self) -> str:
        """The token in the address."""
        return self.url.rpartition("#token=")[2]


_fits: Final = check_of(Beacon)


def folder() -> Path:
    """Return the folder of the beacons, which may not be there; one of another user is refused."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = Path(base) / "whywait" if base else Path(tempfile.gettempdir()) / f"whywait-{user}"
    with contextlib.suppress(FileNotFoundError):
        facts = path.lstat()
        if not stat.S_ISDIR(facts.st_mode) or (hasattr(os, "getuid") and facts.st_uid != user):
            raise ConfigError(f"{path} belongs to another user: set XDG_RUNTIME_DIR to a folder of your own")
        if facts.st_mode & 0o022:
            raise ConfigError(f"{path} can be written by other users: chmod it to 700, or set XDG_RUNTIME_DIR")
    return path


def light(url: str, name: str, file: str | None = None) -> Path | None:
    """Leave the address of a server; return the file, or None where nothing can be left."""
    started = file if file is not None else getattr(sys.modules.get("__main__"), "__file__", None) or ""
    beacon = Beacon(url, str(Path(started).resolve()) if started else "", name, os.getpid())
    own = url.startswith(UNIX)
    stem = Path(beacon.address).stem if own else f"{beacon.pid}-{beacon.address.rpartition(':')[2]}"
    return _keep(f"{stem}.json", json.dumps(beacon._asdict()))


def new_socket() -> Path | None:
    """Return where a server without a port can listen for this user's commands, or None where it cannot."""
    try:
        path = folder() / f"{os.getpid()}-{secrets.token_hex(4)}.sock"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ConfigError):
        return None
    return path if len(os.fsencode(path)) <= LONGEST_SOCKET else None


def redirect_to(url: str, path: Path | None = None) -> Path | None:
    """Leave a page that leads to an address with its token, for a browser; return the file, or None where none can be.

    A browser is started with the file on its command line, which other users can see; the token they cannot.
    """
    text = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(url)}">'
    return _keep(f"{os.getpid()}-open.html", text) if path is None else _write(path, text)


def _keep(name: str, text: str) -> Path | None:
    """Write a file into the folder of the beacons, if that can be."""
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        return _write(folder() / name, text)
    except (OSError, ConfigError):
        return None


def _write(path: Path, text: str) -> Path | None:
    """Write a file that only this user can read; return None where that cannot be: it is a convenience."""
    try:
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return path


def put_out(path: Path) -> None:
    """Take an address away, and the folder with the last one."""
    with contextlib.suppress(OSError):
        path.unlink()
        path.with_suffix(".sock").unlink(missing_ok=True)
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
        raise ConfigError(f"no served run {what}was found: start it with --devtools, or give its address")
    choices = ", ".join(
        f"{printable(beacon.file or beacon.name)} (process {beacon.pid}, {beacon.address})" for beacon in lit
    )
    raise ConfigError(f"{len(lit)} served runs {what}were found: {choices}; give the address of one")


def find_at(address: str) -> Beacon | None:
    """Return the served run at an address without a token, or None."""
    return next((beacon for beacon in living() if beacon.address == address), None)


def living() -> list[Beacon]:
    """Return the beacons of processes that are alive, and remove the others."""
    found = []
    for path in sorted(folder().glob("*.json")):
        beacon = _read(path)
        if beacon is None:
            continue  # it is not ours, or half written
        if _is_alive(beacon.pid):
            found.append(beacon)
        else:
            put_out(path)
    return found


def _read(path: Path) -> Beacon | None:
    """Return what a file says, or None if it is no beacon."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            fields = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.keys() != set(Beacon._fields) or not _fits(beacon := Beacon(**fields)):
        return None
    is_sound = beacon.url.isprintable() and len(beacon.url) <= LONGEST_URL and 0 < beacon.pid <= MOST_PID
    return beacon if is_sound else None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; one that is a pipe does not wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True
