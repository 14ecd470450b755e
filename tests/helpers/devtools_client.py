"""Talking to a DevTools server the way a stranger would: plain HTTP, nothing shared with the code under test."""

import http.client
import json
import threading
from contextlib import contextmanager

from patience import PATIENCE_S
from whywait import Authority


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


def ask(tools, path, method="GET", *, token=None, body=None, host=None, **headers):
    """Send one request; keyword arguments are headers, with _ for -."""
    connection = http.client.HTTPConnection("127.0.0.1", tools.port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", host if host is not None else f"127.0.0.1:{tools.port}")
        if token is not None:
            connection.putheader("Authorization", f"Bearer {token}")
        data = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(data)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def get(tools, path):
    """Return what a path answers to the holder of the token, which must be fine."""
    answer = ask(tools, path, token=tools.token)
    assert answer.status == 200, answer.body
    return answer.json


class Stream:
    """A viewer of the event stream."""

    def __init__(self, tools, since=None, last_id=None, query=None):
        self._connection = http.client.HTTPConnection("127.0.0.1", tools.port, timeout=PATIENCE_S)
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {tools.token}"}
        if last_id is not None:
            headers["Last-Event-ID"] = str(last_id)
        query = query if query is not None else "" if since is None else f"since={since}"
        path = f"/api/events?{query}"
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()

    def next(self):
        """Return (kind, id, data) of the next message; None at the end of the stream."""
        fields = {}
        while True:
            line = self.response.readline().decode()
            if not line:
                return None
            if line == "\n":
                if "data" in fields:
                    return fields.get("event", "message"), fields.get("id"), json.loads(fields["data"])
                fields = {}
                continue
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def close(self):
        self.response.close()
        self._connection.close()


class Gate:
    """A body that runs until it is let go."""

    def __init__(self):
        self._open = threading.Event()
        self.running = threading.Event()

    def __call__(self, *_):
        self.running.set()
        assert self._open.wait(3 * PATIENCE_S)
        return "secret result"

    def open(self):
        self._open.set()


@contextmanager
def served(*, control=True, **options):
    """An authority with DevTools, and a gate that holds its first slot's task until the block is left."""
    gate = Gate()
    authority = Authority(**{"slots": 2, **options})
    try:
        yield authority, authority.devtools(control=control, announce=False), gate
    finally:
        gate.open()
        authority.dispose()
