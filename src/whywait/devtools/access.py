"""Access: which requests are let through, decided before anything else looks at them.

An ``Access`` is called with the ASGI scope of each request and raises ``Refused`` for one that is not let through.
There is one for each way in:

* ``ByToken``, for browsers and programs that come over TCP or through the app of a host. Every request needs the token,
  but for the page itself, which tells nothing of the run, and the routes that are open. ``Host`` must name this server,
  so that no foreign name can be pointed here; no other site is answered, whether the browser tells so by ``Origin`` or
  by ``Sec-Fetch-Site``.
* ``ByUser``, for a Unix socket: the process at the other end must belong to one user. No token is needed.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from starlette.types import Scope

Access = Callable[[Scope], None]

PAGE_PATH: Final = "/"
FILES_PATH: Final = "/page/"
LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
OWN_SITES: Final = ("same-origin", "none")  # of Sec-Fetch-Site; none: typed, or opened from a bookmark


class Refused(Exception):  # noqa: N818 - it says what happened
    """A request is not let through."""

    def __init__(self, status: int, message: str) -> None:
        """Refuse with an HTTP status and a reason."""
        super().__init__(message)
        self.status = status


class Peer(NamedTuple):
    """The process at the other end of a Unix socket."""

    pid: int
    uid: int
    gid: int


class ByUser:
    """Lets the processes of one user through, over a Unix socket."""

    def __init__(self, uid: int) -> None:
        """Let this user through."""
        self._uid = uid

    def __call__(self, scope: Scope) -> None:
        """Check one request."""
        peer = scope["state"].get("peer")
        if peer is None or peer.uid != self._uid:
            raise Refused(403, "this socket is for the user who opened it only")


class ByToken:
    """Lets requests through that name this server, come from no other site, and carry the token."""

    def __init__(
        self,
        token: str,
        names: Iterable[str] | None,
        *,
        any_address: bool = False,
        open_paths: Iterable[str] = (),
        also: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Ask for ``token``, but not on ``open_paths``.

        ``names``: what ``Host`` may be, whatever the port; None: anything, because the host of the app checks it.
        ``any_address``: a numeric ``Host`` is fine, as no foreign name can stand for it. ``also``: a function that
        returns something true for other tokens that do as well.
        """
        self._token = token.encode()
        self._names = None if names is None else {name.lower() for name in names}
        self._any_address = any_address
        self._open_paths = {PAGE_PATH, *open_paths}
        self._also = also

    def __call__(self, scope: Scope) -> None:
        """Check one request."""
        headers = _Headers(scope)
        hosts = headers.all(b"host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise Refused(403, "the Host header does not name this server: use the address that it printed")
        if not _is_own_site(headers, hosts[0]) and not _opens_the_page(scope, headers):
            raise Refused(403, "requests from other sites are not answered")
        if not (scope["path"] in self._open_paths or scope["path"].startswith(FILES_PATH)):
            self._check_token(scope)

    def _is_ours(self, host: str) -> bool:
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return self._names is None or name.lower() in self._names or (self._any_address and _is_address(name))

    def _check_token(self, scope: Scope) -> None:
        given = token_in(scope)
        if not given:
            raise Refused(401, "this needs the token of the run: send it as 'Authorization: Bearer TOKEN'")
        if not hmac.compare_digest(given.encode("latin-1", "replace"), self._token) and not self._also(given):
            raise Refused(401, "the token is wrong: it is in the address that the run has printed")


def token_in(scope: Scope) -> str:
    """Return the token that a request carries, or nothing."""
    scheme, _, given = _Headers(scope).first(b"authorization").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


class _Headers:
    def __init__(self, scope: Scope) -> None:
        self._pairs = [(name.lower(), value) for name, value in scope["headers"]]

    def all(self, wanted: bytes) -> list[str]:
        return [value.decode("latin-1") for name, value in self._pairs if name == wanted]

    def first(self, wanted: bytes) -> str:
        return next(iter(self.all(wanted)), "")


def _is_own_site(headers: _Headers, host: str) -> bool:
    """Return whether the browser, if it is one, says that its page came from the server that is asked."""
    sites = headers.all(b"sec-fetch-site")
    origins = headers.all(b"origin")
    return all(site in OWN_SITES for site in sites) and all(
        origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower()} for origin in origins
    )


def _opens_the_page(scope: Scope, headers: _Headers) -> bool:
    """Return whether a link somewhere else is followed to the page, in a tab of its own: it tells nothing yet."""
    return (
        scope["method"] == "GET"
        and scope["path"] == PAGE_PATH
        and headers.all(b"sec-fetch-mode") == ["navigate"]
        and headers.all(b"sec-fetch-dest") == ["document"]
        and not headers.all(b"origin")
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
