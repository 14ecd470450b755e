"""A small web service on this machine that misbehaves, and the client that asks it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import ProxyHandler, build_opener

import whywait

FAILURES = 2  # how often a flaky path fails before it answers
HANG_S = 10.0

asked: Counter[str] = Counter()
answered: Counter[int] = Counter()


class Service(BaseHTTPRequestHandler):
    """Answers by the first part of the path: steady, flaky, hanging or broken."""

    def do_GET(self) -> None:
        """Answer one request, well or badly."""
        asked[self.path] += 1
        kind = self.path.split("/")[1]
        if kind == "broken" or (kind == "flaky" and asked[self.path] <= FAILURES):
            self._begin(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        self._begin(HTTPStatus.OK)
        pauses = int(HANG_S / 0.05) if kind == "hanging" else 2
        try:
            for _ in range(pauses):  # a byte now and then, as a busy server sends them
                self.wfile.write(b".")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return  # the client has gone

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: the client tells what it got."""

    def _begin(self, status: HTTPStatus) -> None:
        answered[status] += 1
        self.send_response(status)
        self.end_headers()


@cache
def address() -> str:
    """Start the service when it is first needed; return where it is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def fetch(path: str) -> int:
    """Ask for a path; give up as soon as the task is asked to end."""
    print("asking for", path)
    size = 0
    opener = build_opener(ProxyHandler({}))
    with opener.open(address() + path, timeout=5) as answer:
        while answer.read(1):
            whywait.current().checkpoint()
            size += 1
    print(f"{path}: {size} bytes")
    return size


def summary() -> None:
    """Tell how often the service was asked and how it answered."""
    for path, count in sorted(asked.items()):
        print(f"{path}: asked {count} times")
    print(", ".join(f"{count} times {status}" for status, count in sorted(answered.items())))
