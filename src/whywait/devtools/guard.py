"""The guard: what every request has to pass before anything looks at it.

* ``Host`` must name this server, so that no page of a foreign site can reach it by pointing its own name here.
* ``Origin``, where a browser sends it, must be this server: no other site reads or changes anything. No CORS.
* A body may be small and must come soon; who does not take the answer in time is cut off.
* Every answer forbids sniffing, framing, caching and all sources but this server.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Iterable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES: Final = 4_096
BODY_TIMEOUT_S: Final = 5.0
SEND_TIMEOUT_S: Final = 15.0
METHODS: Final = ("GET", "HEAD", "POST", "PUT")

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


class Refused(Exception):  # noqa: N818 - it says what happened
    """A request is not let through."""

    def __init__(self, status: int, message: str) -> None:
        """Refuse with an HTTP status and a reason."""
        super().__init__(message)
        self.status = status


class Guard:
    """Lets requests through to the app that are meant for it, and answers for those that are not."""

    def __init__(self, app: ASGIApp, port: int, names: Iterable[str], *, any_address: bool) -> None:
        """Guard ``app``; ``any_address``: a numeric ``Host`` is fine, as no foreign name can stand for it."""
        self._app = app
        self._port = port
        self._names = {name.lower() for name in names}
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        too_slow = False

        async def send_in_time(message: Message) -> None:
            nonlocal too_slow
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.get("headers", ())}
                message["headers"] = [*message.get("headers", ()), *(pair for pair in HEADERS if pair[0] not in own)]
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send(message)
            except TimeoutError:
                too_slow = True
                scope["state"]["hang_up"]()
                raise

        try:
            self._check(scope)
            body = await _read_body(receive)
            await self._app(scope, _Replay(body, receive), send_in_time)
        except Refused as refused:
            await _answer(send_in_time, refused)
        except Exception:  # whatever the app makes of a viewer who is gone
            if not too_slow:
                raise
            await asyncio.sleep(0.01)  # the server is told first that nobody is there any more

    def _check(self, scope: Scope) -> None:
        if scope["method"] not in METHODS:
            raise Refused(405, f"the method {scope['method']} is not used here: use one of {', '.join(METHODS)}")
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._is_us(hosts[0]):
            raise Refused(403, "the Host header does not name this server: use the address that it printed")
        for origin in (value for name, value in headers if name == b"origin"):
            scheme, _, host = origin.partition("://")
            if scheme != "http" or not self._is_us(host):
                raise Refused(403, "requests from other sites are not answered")

    def _is_us(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not name:
            name, port = port, "80"
        if (port or "80") != str(self._port):
            return False
        return name.lower() in self._names or (self._any_address and _is_address(name))


class _Replay:
    """Gives the body that was read already, then whatever comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()


async def _read_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return b""
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MAX_BODY_BYTES:
                    raise Refused(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None


async def _answer(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status in (408, 413):
        headers.append((b"connection", b"close"))
    if refused.status == 405:  # noqa: PLR2004 - HTTP's number
        headers.append((b"allow", ", ".join(METHODS).encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
