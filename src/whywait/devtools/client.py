"""A client of the DevTools API, for the command line; needs nothing but the standard library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from whywait.devtools.beacon import find
from whywait.errors import WhywaitError
from whywait.units import shown

TIMEOUT_S: Final = 10.0


class RemoteError(WhywaitError):
    """The server refused, or does not answer."""


class Remote:
    """A served run, reached by its URL, by the file that was started, or as the only one there is."""

    def __init__(self, target: str | None = None) -> None:
        """Find the server; nothing is asked yet."""
        url = target if target is not None and "://" in target else find(target).url
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.netloc:
            raise RemoteError(f"{shown(url)} is no address of DevTools: it looks like http://127.0.0.1:PORT/#token=...")
        self.base = f"http://{parts.netloc}"
        self._token = parts.fragment.removeprefix("token=") if parts.fragment.startswith("token=") else ""
        self._open = build_opener(ProxyHandler({})).open  # a proxy has no business between us

    def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401 - JSON
        """Return what the server answers."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._ask(Request(f"{self.base}{path}{'?' + urlencode(given) if given else ''}"))  # noqa: S310 - http only

    def task(self, ref: str | int) -> Any:  # noqa: ANN401 - JSON
        """Return one task with its why."""
        return self.get(f"/api/tasks/{_quoted(ref)}")

    def act(self, verb: str, ref: str | int) -> Any:  # noqa: ANN401 - JSON
        """Cancel, pause or resume a task."""
        if not self._token:
            raise RemoteError("this needs the token: give the whole URL that the run has printed, with #token=...")
        headers: Mapping[str, str] = {"Authorization": f"Bearer {self._token}"}
        path = f"{self.base}/api/tasks/{_quoted(ref)}/{verb}"
        return self._ask(Request(path, method="POST", headers=dict(headers)))  # noqa: S310 - http only

    def _ask(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        request.add_header("Accept", "application/json")
        try:
            with self._open(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise RemoteError(_message(error)) from None
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RemoteError(f"{self.base} does not answer ({reason}): is the run over?") from None


def _quoted(ref: str | int) -> str:
    """Return what names a task in a path: a name, or a number, which no name can be taken for."""
    text = f"@{ref}" if isinstance(ref, int) else ref
    return quote(text, safe="", errors="replace")  # an argument that is no text names no task


def _message(error: HTTPError) -> str:
    with error:
        try:
            return str(json.load(error)["error"])
        except (ValueError, KeyError, TypeError):
            return f"the server answered {error.code}"
