"""A client of the DevTools API, for the command line; needs nothing but the standard library."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from whywait.devtools.api import ROUTES
from whywait.devtools.beacon import LONGEST_URL, UNIX, find, find_at
from whywait.devtools.schemas import fits, schema_of
from whywait.errors import ConfigError, WhywaitError
from whywait.support.units import shown
from whywait.support.version import __version__

Json = Any  # as it was parsed
TIMEOUT_S: Final = 10.0
_ANSWERS: Final = {(route.method, route.path): schema_of(route.answer) for route in ROUTES}
LOCKED: Final = (
    "this needs the token of the run: put it in a file that only you can read and give --token-file FILE; a run of "
    "yours on this machine needs none"
)


class RemoteError(WhywaitError):
    """The server refused, or does not answer."""


class Remote:
    """A served run, reached by its address, by the file that was started, or as the only one there is."""

    def __init__(self, target: str | None = None, token_file: Path | None = None) -> None:
        """Find the server; nothing is asked yet.

        An address needs no token if the run is one of this user's on this machine, or if ``token_file`` holds it.
        """
        url = target if target is not None and "://" in target else find(target).url
        address, _, fragment = url.partition("#")
        self.base = address.rstrip("/")
        self._connect = _connector(self.base)
        self._token = _token_in(fragment)
        if token_file is not None:
            self._token = _read_token(token_file)
        elif not self._token and (beacon := find_at(self.base)) is not None:
            self._token = beacon.token

    def get(self, path: str, **query: str | int | None) -> Json:
        """Return what the server answers."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._ask("GET", path, query=f"?{urlencode(given)}" if given else "")

    def task(self, ref: str | int) -> Json:
        """Return one task with its why."""
        return self._ask("GET", "/api/tasks/{ref}", ref)

    def act(self, verb: str, ref: str | int) -> Json:
        """Cancel, pause or resume a task."""
        return self._ask("POST", f"/api/tasks/{{ref}}/{verb}", ref)

    def _ask(self, method: str, route: str, ref: str | int = "", query: str = "") -> Json:
        path = route.replace("{ref}", _quoted(ref)) + query
        connection = self._connect()
        try:
            headers = {"Accept": "application/json", "Authorization": f"Bearer {self._token}"}
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            status, data = answer.status, json.load(answer)
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise RemoteError(f"{self.base} does not answer ({error}): is the run over?") from None
        finally:
            connection.close()
        if status == HTTPStatus.OK:
            if not fits(data, _ANSWERS[method, route]):
                raise RemoteError(f"{self.base} answers something else than a run of whywait {__version__} would")
            return data
        if status == HTTPStatus.UNAUTHORIZED:
            raise RemoteError(LOCKED)
        raise RemoteError(str(data.get("error")) if isinstance(data, dict) else f"the server answered {status}")


class _UnixConnection(HTTPConnection):
    """A connection over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connector(address: str) -> Callable[[], HTTPConnection]:
    """Return what makes a connection to an address."""
    if address.startswith(UNIX):
        return partial(_UnixConnection, address.removeprefix(UNIX))
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        HTTPConnection(host or "", port)  # refuses what can be no name
    except (ValueError, HTTPException):
        host, port = None, None
    if host is None or parts.scheme != "http" or parts.path:
        raise RemoteError(f"{shown(address)} is no address of DevTools: it looks like http://127.0.0.1:PORT")
    return partial(HTTPConnection, host, port, timeout=TIMEOUT_S)


def _quoted(ref: str | int) -> str:
    """Return what names a task in a path: a name, or a number, which no name can be taken for."""
    text = f"@{ref}" if isinstance(ref, int) else ref
    return quote(text, safe="", errors="replace")  # an argument that is no text names no task


def _token_in(text: str) -> str:
    """Return the token in an address, or in the part of it behind the #; nothing if there is none."""
    return text.rpartition("token=")[2].strip() if "token=" in text else ""


def _read_token(path: Path) -> str:
    """Return the token that a file holds, alone or in the address that a run has printed."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST_URL).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    token = _token_in(text) or text
    if not (token.isascii() and token.isprintable() and token):
        raise ConfigError(f"{path}: holds no token: it is what stands behind #token= in the address of the run")
    return token
