"""The guard: what every request has to pass before anything looks at it, and what every answer carries.

* The access to the app (``access.py``) must let it through.
* A head and a body may be small, and a body must come soon; a client that does not take the answer in time is cut off.
* Every answer forbids sniffing, framing, caching and all sources but this server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whywait.devtools.access import Access, Refused

MAX_HEAD_BYTES: Final = 16_384
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


class Guard:
    """Lets requests through to the app that are meant for it, and answers for those that are not."""

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
        hang_up = scope["state"].get("hang_up")  # of our own server only: another one has its own patience
        too_slow = False

        async def send_in_time(message: Message) -> None:
            nonlocal too_slow
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.get("headers", ())}
                message["headers"] = [*message.get("headers", ()), *(pair for pair in HEADERS if pair[0] not in own)]
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S if hang_up is not None else None):
                    await send(message)
            except TimeoutError:
                too_slow = True
                hang_up()
                raise

        try:
            self._check(scope)
            body = await self._read_body(receive)
            await self._app(scope, _Replay(body, receive), send_in_time)
        except Refused as refused:
            await _answer(send_in_time, refused)
        except Exception:  # whatever the app makes of a viewer that is gone
            if not too_slow:
                raise
            await asyncio.sleep(0.01)  # the server is told first that the client is gone

    def _check(self, scope: Scope) -> None:
        if _head_bytes(scope) > MAX_HEAD_BYTES:
            raise Refused(431, f"the address and the headers are longer than {MAX_HEAD_BYTES} bytes")
        if scope["method"] not in METHODS:
            raise Refused(405, f"the method {scope['method']} is not used here: use one of {', '.join(METHODS)}")
        self._access(scope)

    async def _read_body(self, receive: Receive) -> bytes:
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
                    if size > self._max_body_bytes:
                        raise Refused(413, f"the body is longer than {self._max_body_bytes} bytes")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None


def _head_bytes(scope: Scope) -> int:
    """Return how long the head of a request was; without dropped white space where another server has read it."""
    measured: Callable[[], int] | None = scope["state"].get("head_bytes")
    if measured is not None:
        return measured()
    address = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    return address + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


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


async def _answer(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status in (408, 413, 431):
        headers.append((b"connection", b"close"))
    if refused.status == 401:  # noqa: PLR2004 - HTTP's number
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status == 405:  # noqa: PLR2004 - HTTP's number
        headers.append((b"allow", ", ".join(METHODS).encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
