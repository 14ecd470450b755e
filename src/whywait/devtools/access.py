"""Access: which requests reach the app, and what every answer carries.

A ``Guard`` stands before the app, for each way in: it refuses long heads and bodies, and bodies that do not arrive
soon, and forbids sniffing, framing, caching and all sources but this server with every answer. It asks an ``Access``, a
function of the ASGI scope that raises ``Problem``:

* ``ByToken``, for browsers and programs that come over TCP or through the app of a host. Every request needs the token,
  but for the page itself, which holds nothing of the run, and the routes that are open. ``Host`` must name this server,
  so that no foreign name can be pointed here; no other site is answered, whether the browser tells so by ``Origin`` or
  by ``Sec-Fetch-Site``.
* ``ByUser``, for a Unix socket: the process at the other end must belong to one user. No token is needed.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whywait.devtools.answers import Json, Problem

Access = Callable[[Scope], None]

PAGE_PATH: Final = "/"
FILES_PATH: Final = "/page/"
LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
OWN_SITES: Final = ("same-origin", "none")  # of Sec-Fetch-Site; none: typed, or opened from a bookmark
MAX_HEAD_BYTES: Final = 16_384
MAX_BODY_BYTES: Final = 4_096
BODY_TIMEOUT_S: Final = 5.0
CLOSE: Final = {"connection": "close"}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Passes requests on to an app, and answers those that are refused."""

    def __init__(self, app: ASGIApp, access: Access, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        """Guard ``app``."""
        self._app = app
        self._access = access
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        scope.setdefault("state", {})

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.get("headers", ())}
                message["headers"] = [*message.get("headers", ()), *(pair for pair in HEADERS if pair[0] not in own)]
            await send(message)

        try:
            _check_head(scope)
            self._access(scope)
            body = await self._read_body(receive)
        except Problem as problem:
            await Json({"error": problem.detail}, problem.status_code, problem.headers)(scope, receive, send_guarded)
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, receive_again, send_guarded)

    async def _read_body(self, receive: Receive) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > self._max_body_bytes:
                        raise Problem(413, f"the body is longer than {self._max_body_bytes} bytes", CLOSE)
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise Problem(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s", CLOSE) from None
        return b""  # the client has hung up: of what it has sent, some may be missing


def _check_head(scope: Scope) -> None:
    """Refuse a request whose head is too long, without white space that the server has dropped."""
    address = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if address + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > MAX_HEAD_BYTES:
        raise Problem(431, f"the address and the headers are longer than {MAX_HEAD_BYTES} bytes", CLOSE)


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
            raise Problem(403, "this socket is for the user who opened it only")


class ByToken:
    """Lets requests through that name this server, come from no other site, and carry the token."""

    def __init__(
        self,
        token: str,
        names: Iterable[str] | None,
        *,
        any_address: bool = False,
        open_paths: Iterable[str] = (),
    ) -> None:
        """Ask for ``token``, but not on ``open_paths``.

        ``names``: what ``Host`` may be, whatever the port; None: anything, because the host of the app checks it.
        ``any_address``: a numeric ``Host`` is fine, as no foreign name can stand for it.
        """
        self._token = token.encode()
        self._names = None if names is None else {name.lower() for name in names}
        self._any_address = any_address
        self._open_paths = {PAGE_PATH, *open_paths}

    def __call__(self, scope: Scope) -> None:
        """Check one request."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise Problem(403, "the Host header does not name this server: use the address that it printed")
        if not _is_own_site(headers, hosts[0]) and not _opens_the_page(scope, headers):
            raise Problem(403, "requests from other sites are not answered")
        if not (scope["path"] in self._open_paths or scope["path"].startswith(FILES_PATH)):
            self._check_token(scope)

    def _is_ours(self, host: str) -> bool:
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return self._names is None or name.lower() in self._names or (self._any_address and _is_address(name))

    def _check_token(self, scope: Scope) -> None:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if not given:
            raise Problem(
                401,
                "this needs the token of the run: send it as 'Authorization: Bearer TOKEN'",
                {"www-authenticate": "Bearer"},
            )
        if not hmac.compare_digest(given.encode("latin-1", "replace"), self._token):
            raise Problem(
                401, "the token is wrong: it is in the address that the run has printed", {"www-authenticate": "Bearer"}
            )


def _is_own_site(headers: Headers, host: str) -> bool:
    """Return whether the browser, if it is one, says that its page came from the server that is asked."""
    sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
    return all(site in OWN_SITES for site in sites) and all(
        origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower()} for origin in origins
    )


def _opens_the_page(scope: Scope, headers: Headers) -> bool:
    """Return whether a link elsewhere opens the page in a tab of its own; the page holds nothing of the run yet."""
    return (
        scope["method"] == "GET"
        and scope["path"] == PAGE_PATH
        and headers.getlist("sec-fetch-mode") == ["navigate"]
        and headers.getlist("sec-fetch-dest") == ["document"]
        and not headers.getlist("origin")
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
