"""The control API of DevTools: it needs the token, does what it says, and says why when it does not."""

import socket
import threading
from urllib.parse import quote

import pytest

import whywait
from devtools_client import Gate, ask, get, served
from patience import until
from whywait.devtools.remote import Remote


def parking(started):
    ctx = whywait.current()
    started.set()
    while True:
        ctx.checkpoint()
        ctx.signal.wait(0.005)


@pytest.fixture(scope="module")
def standing():
    """A run in which nothing changes, for calls that are refused."""
    with served(slots=1) as (authority, tools, gate):
        authority.submit(gate, id="first")
        gate.running.wait(10)
        yield authority, tools


@pytest.fixture
def run():
    with served(slots=1, grace=0.2, pause_timeout=0.2) as (authority, tools, gate):
        authority.submit(gate, id="first")
        gate.running.wait(10)
        yield authority, tools, gate


def act(tools, path, method="POST", body=None):
    return ask(tools, path, method, token=tools.token, body=body)


def test_control_false_leaves_all_of_it_out():
    with served(control=False) as (authority, tools, gate):
        authority.submit(gate, id="first")
        answer = act(tools, "/api/tasks/first/cancel")
        assert answer.status in (404, 405)
        assert authority.get("first").state == "RUNNING"
        assert all(method == "get" for path in get(tools, "/openapi.json")["paths"].values() for method in path)
        assert get(tools, "/api/info")["control"] is False


def test_pending_tasks_are_paused_resumed_and_cancelled(run):
    authority, tools, _ = run
    handle = authority.submit(int, id="second")
    assert act(tools, "/api/tasks/second/pause").json == {"done": "paused", "state": "PAUSED"}
    assert handle.state == "PAUSED"
    assert act(tools, "/api/tasks/second/resume").json == {"done": "resumed", "state": "READY"}
    assert act(tools, "/api/tasks/second/cancel").json == {"done": "cancelled", "state": "aborted"}
    assert handle.outcome == "aborted"


def test_a_running_task_parks_and_goes_on():
    with served() as (authority, tools, _):
        started = threading.Event()
        handle = authority.submit(parking, started, id="loop")
        started.wait(10)
        assert act(tools, "/api/tasks/loop/pause").json["state"] == "PAUSED"
        assert act(tools, "/api/tasks/loop/resume").json["state"] == "RUNNING"
        assert act(tools, "/api/tasks/loop/cancel").status == 200
        until(handle.done)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/tasks/first/resume", 409, "nothing to resume"),
        ("/api/tasks/first/pause", 409, "reached no checkpoint"),
        ("/api/tasks/nobody/cancel", 404, "nobody"),
        ("/api/scopes/nowhere/suspend", 404, "default"),
        ("/api/scopes/default/resume", 409, "RUNNING"),
    ],
)
def test_a_refusal_says_why(run, path, status, said):
    _, tools, _ = run
    answer = act(tools, path)
    assert (answer.status, said in answer.json["error"]) == (status, True), answer.body


def test_x4_what_has_ended_is_cancelled_and_paused_without_an_error_but_not_resumed(run):
    """X4: pausing or cancelling what is already finished is no error and changes nothing; resuming it is an error."""
    authority, tools, gate = run
    gate.open()
    until(lambda: authority.get_scope("default").snapshot().running == ())
    before = authority._core.last_seq
    for verb in ("cancel", "pause"):
        answer = act(tools, f"/api/tasks/first/{verb}")
        assert (answer.status, answer.json) == (200, {"done": "nothing", "state": "success"})
    answer = act(tools, "/api/tasks/first/resume")
    assert (answer.status, "has ended (success)" in answer.json["error"]) == (409, True)
    assert authority._core.last_seq == before


ODD_IDS = (
    "line\nend", "\n", "last\n", "a/b", "a/cancel", "/", "what?x=1", "100%", "%2F", "%0A", "#7", "+", " ",
    "\u00fcml\u00e4ut \u2028\U0001f600", "..", ".", "a\\b", "\x00\x1f", "2", "-v", "a;b&c=d", "x" * 900,
)  # fmt: skip


@pytest.mark.parametrize("ident", ODD_IDS, ids=ascii)
def test_any_task_is_reached_by_its_id(standing, ident):
    authority, tools = standing
    handle = authority.submit(int, id=ident)
    path = f"/api/tasks/{quote(ident, safe='')}"
    assert get(tools, path)["task"]["id"] == ident
    assert get(tools, f"/api/tasks/{quote(f'default/{ident}', safe='')}")["task"]["id"] == ident
    assert get(tools, f"/api/tasks/@{handle.ref.number}")["task"]["id"] == ident
    assert act(tools, f"{path}/pause").json["state"] == "PAUSED"
    assert handle.state == "PAUSED"
    assert Remote(tools.url).act("cancel", ident) == {"done": "cancelled", "state": "aborted"}
    assert "cancel" in Remote(tools.url).task(ident)["text"]


def test_an_id_that_looks_like_a_number_goes_before_the_number():
    with served(slots=1) as (authority, tools, gate):
        first = authority.submit(gate, id="first")
        authority.submit(int, id=str(first.ref.number))
        assert get(tools, f"/api/tasks/{first.ref.number}")["task"]["id"] == str(first.ref.number)
        assert get(tools, f"/api/tasks/@{first.ref.number}")["task"]["id"] == "first"


def test_scopes_are_suspended_resumed_and_disposed_of():
    with served() as (authority, tools, _):
        scope = authority.scope("render")
        gate = Gate()
        scope.submit(gate, id="now")
        gate.running.wait(10)
        assert act(tools, "/api/scopes/render/suspend").json == {"done": "suspended", "state": "SUSPENDED"}
        assert scope.state == "SUSPENDED"
        assert act(tools, "/api/scopes/render/resume").json["state"] == "RUNNING"
        gate.open()
        assert act(tools, "/api/scopes/render/dispose").json == {"done": "disposed", "state": "DISPOSED"}
        assert scope.state == "DISPOSED"


def test_disposing_of_what_does_not_end_names_it(run):
    authority, tools, _ = run
    answer = act(tools, "/api/scopes/default/dispose")
    assert answer.status == 409
    assert "first" in answer.json["error"]
    assert authority.get_scope("default").state == "DISPOSING"


def test_what_is_sent_by_a_client_that_hangs_up_in_the_midst_of_it_is_not_done():
    with served() as (authority, tools, _):
        authority.scope("bench").periodic(int, every=3600, id="sample")
        head = f"PUT /api/periodics/bench/sample HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {tools.token}\r\n"
        for announced in ("Content-Length: 100\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n12\r\n"):
            with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
                raw.sendall(f'{head}{announced}{{"enabled": false}}\r\n'.encode())
        for _ in range(20):
            assert get(tools, "/api/periodics")["periodics"][0]["enabled"] is True


def test_periodics_are_switched():
    with served() as (authority, tools, _):
        scope = authority.scope("bench")
        scope.periodic(int, every=3600, id="sample")
        assert get(tools, "/api/periodics")["periodics"][0]["enabled"] is True
        answer = act(tools, "/api/periodics/bench%2Fsample", "PUT", {"enabled": False})
        assert answer.json == {"done": "disabled", "state": "off"}
        assert authority.snapshot().periodics[0].enabled is False
        act(tools, "/api/periodics/bench/sample", "PUT", {"enabled": True, "immediately": True})
        until(lambda: authority.snapshot().periodics[0].run_count == 1)
        assert act(tools, "/api/periodics/nothing", "PUT", {"enabled": True}).status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 2000,
        b"[" * 2000 + b"]" * 2000,
        {"enabled": 1},
        {"enabled": "off"},
        {"enabled": None},
        {"enabled": True, "more": 1},
        {},
        b"\xff\xfe",
    ],
)
def test_a_malformed_body_is_refused(standing, body):
    _, tools = standing
    answer = act(tools, "/api/periodics/default%2Fx", "PUT", body)
    assert answer.status == 400
    assert "body" in answer.json["error"]
