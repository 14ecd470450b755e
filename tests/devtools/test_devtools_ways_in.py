"""The ways in to DevTools: a port, a Unix socket for one user, the app of a host; with routes of one's own."""

import http.client
import json
import logging
import os
import socket
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from devtools_client import Gate, ask, get, served
from patience import until
from whywait import Authority, ConfigError
from whywait.devtools.access import ByUser, Peer
from whywait.devtools.answers import Json, Problem
from whywait.devtools.api import ROUTES, RouteSpec
from whywait.devtools.runs import LiveRun
from whywait.devtools.server import DevTools


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.fspath(self._path))


def ask_unix(path, target, method="GET", body=None):
    connection = UnixConnection(path)
    try:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


ECHO = RouteSpec("POST", "/api/echo", "echo", "Tell what was sent, and by which process.", dict)


async def echo(request):
    return Json({"length": len(await request.body()), "pid": request.state.peer and request.state.peer.pid})


@contextmanager
def on_a_socket(path, **options):
    with Authority(slots=1) as authority:
        gate = Gate()
        authority.submit(gate, id="first")
        run = LiveRun(authority, "a name", control=True)
        try:
            with DevTools(run, unix=path, routes=[(ECHO, echo)], **options) as tools:
                yield tools
        finally:
            gate.open()


def test_a_unix_socket_serves_the_same_routes_without_a_token(tmp_path):
    path = tmp_path / "socket"
    with on_a_socket(path, port=None) as tools:
        assert path.stat().st_mode & 0o777 == 0o600
        assert tools.port is None
        assert ask_unix(path, "/api/info")[1]["name"] == "a name"
        assert ask_unix(path, "/api/tasks/first")[1]["task"]["state"] == "RUNNING"
        assert ask_unix(path, "/api/tasks/first/cancel", "POST") == (200, {"done": "cancelled", "state": "DISPOSING"})
        assert ask_unix(path, "/api/nothing")[0] == 404
    assert not path.exists()


def test_a_socket_that_a_killed_server_left_is_replaced(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(path))
    with on_a_socket(path, port=None):
        assert ask_unix(path, "/healthz") == (200, {"status": "ok"})
    path.write_text("something of the user's")
    with pytest.raises(ConfigError, match="cannot listen on"), on_a_socket(path, port=None):
        pass
    with pytest.raises(ConfigError, match="at most 100 bytes"), on_a_socket(tmp_path / ("x" * 200), port=None):
        pass


def test_a_socket_is_for_its_own_user_only():
    allow = ByUser(1000)
    allow({"state": {"peer": Peer(1, 1000, 5)}})
    for peer in (Peer(1, 1001, 1000), Peer(1, 0, 0), None):
        with pytest.raises(Problem, match="for the user who opened it"):
            allow({"state": {"peer": peer}})
    with pytest.raises(Problem):
        allow({"state": {}})


def test_routes_of_ones_own_are_served_described_and_guarded(tmp_path):
    path = tmp_path / "socket"
    with on_a_socket(path, max_body_bytes=100_000) as tools:
        assert ask_unix(path, "/api/echo", "POST", b"x" * 90_000) == (200, {"length": 90_000, "pid": os.getpid()})
        assert ask_unix(path, "/api/echo", "POST", b"x" * 100_001)[0] == 413
        assert ask(tools, "/api/echo", "POST").status == 401
        assert ask(tools, "/api/echo", "POST", token=tools.token, body=b"abc").json == {"length": 3, "pid": None}
        paths = get(tools, "/openapi.json")["paths"]
        assert set(paths) == {"/api/echo", *(route.path for route in ROUTES)}


@contextmanager
def mounted(**options):
    with Authority(slots=1) as authority:
        gate = Gate()
        authority.submit(gate, id="first")
        tools = authority.devtools(**{"port": None, "announce": False, **options})
        host = Starlette(routes=[Mount("/whywait", tools.app)])
        try:
            with TestClient(host, base_url="https://service.example") as client:
                yield tools, client, {"Authorization": f"Bearer {tools.token}"}
        finally:
            gate.open()


def test_devtools_is_mounted_in_the_app_of_a_host():
    with mounted() as (tools, client, token):
        assert (tools.port, tools.base_url) == (None, "")
        page = client.get("/whywait")
        assert (page.status_code, page.url.path) == (200, "/whywait/")
        assert 'src="page/main.js"' in page.text, "paths are relative: the page does not know where it is mounted"
        assert client.get("/whywait/page/main.js").headers["x-content-type-options"] == "nosniff"
        assert client.get("/whywait/api/info").status_code == 401
        assert client.get("/whywait/api/tasks/first", headers=token).json()["task"]["id"] == "first"
        assert client.get("/whywait/api/tasks/nothing", headers=token).status_code == 404
        own = {"Origin": "https://service.example", "Sec-Fetch-Site": "same-origin"}
        assert client.post("/whywait/api/tasks/first/cancel", headers={**token, **own}).json()["done"] == "cancelled"
        for foreign in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert client.get("/whywait/api/info", headers={**token, **foreign}).status_code == 403


def test_a_token_that_is_no_text_is_refused():
    """V6: as any other wrong token."""
    with mounted() as (tools, client, _):
        for given in (b"\xe9", tools.token.encode() + b"\xff", b"wrong"):
            assert client.get("/whywait/api/info", headers={b"Authorization": b"Bearer " + given}).status_code == 401


def test_a_mounted_stream_goes_on_until_the_run_is_over():
    with mounted() as (tools, client, token):
        with client.stream("GET", "/whywait/api/events", headers={**token, "Accept": "text/event-stream"}) as answer:
            lines = answer.iter_lines()
            kinds = [
                json.loads(line[6:])["kind"] for line in (next(lines) for _ in range(12)) if line.startswith("data")
            ]
            tools.finish()
            assert "event: finished" in list(lines)
        assert "TASK_SUBMITTED" in kinds
        tools.close()
        assert client.get("/whywait/api/info", headers=token).status_code == 503


def test_a_host_may_name_the_names_that_it_is_called_by():
    with mounted(hosts=["service.example"]) as (_, client, token):
        assert client.get("/whywait/api/info", headers=token).status_code == 200
        assert client.get("/whywait/api/info", headers={**token, "Host": "evil.example"}).status_code == 403


def test_the_metrics_join_a_registry_of_the_users():
    """V5: the same families as at /metrics, read from any thread; none when the run is over."""
    registry = CollectorRegistry(auto_describe=True)
    with Authority(slots=3) as authority:
        tools = authority.devtools(port=None, announce=False)
        registry.register(tools.collector)
        authority.submit(int, priority="low").result(10)
        until(lambda: registry.get_sample_value("whywait_task_run_seconds_count", RAN) == 1)
        assert registry.get_sample_value("whywait_budget_limit", {"resource": "slots"}) == 3
        told = generate_latest(registry)
        assert b"whywait_tasks_submitted_total 1.0" in told
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(tools.collector)
    assert generate_latest(registry) == b""


RAN = {"priority": "20", "scope": "default", "outcome": "success"}


def test_nothing_of_the_hosts_logging_changes_by_opening_devtools():
    names = ("", "uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")

    def facts():
        loggers = [logging.getLogger(name) for name in names]
        return [(each.level, each.handlers[:], each.propagate, each.disabled, each.filters[:]) for each in loggers]

    class Kept(logging.Handler):
        def __init__(self):
            super().__init__()
            self.lines = []

        def emit(self, record):
            self.lines.append(record)

    kept = Kept()
    uvicorn_error, access = logging.getLogger("uvicorn.error"), logging.getLogger("uvicorn.access")
    for logger in (uvicorn_error, access):
        logger.addHandler(kept)
    try:
        before = facts()
        with served() as (_, tools, _):
            assert ask(tools, "/api/info").status == 401
            assert ask(tools, "/api/info", token=tools.token).status == 200
            with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
                raw.sendall(b"\x00\x01 nonsense\r\n\r\n")
                raw.recv(100)
            assert facts() == before
        assert facts() == before
        assert kept.lines == [], "nothing is said through the loggers of the host's server"
        access.warning("still heard")
        assert [record.getMessage() for record in kept.lines] == ["still heard"]
    finally:
        for logger in (uvicorn_error, access):
            logger.removeHandler(kept)
