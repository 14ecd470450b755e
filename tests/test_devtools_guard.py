"""Who may talk to DevTools, how much, and how slowly."""

import logging
import socket

import pytest

from devtools_client import Gate, ask, get, served
from patience import until
from whywait import Authority, ConfigError
from whywait.devtools import guard, protocol
from whywait.devtools.routes import ROUTES


@pytest.fixture(scope="module")
def standing():
    with served() as (authority, tools, gate):
        authority.submit(gate, id="first")
        yield authority, tools


PATHS = [("GET", "/"), ("GET", "/page/main.js"), ("GET", "/openapi.json")]
PATHS += [(route.method, route.path.replace("{ref}", "first").replace("{key}", "default")) for route in ROUTES]


@pytest.mark.parametrize(("method", "path"), PATHS, ids=lambda part: part)
def test_a_foreign_host_or_origin_is_refused_on_every_path_and_method(standing, method, path):
    authority, tools = standing
    before = authority.last_seq
    local = f"127.0.0.1:{tools.port}"
    for host in (
        "evil.example",
        f"evil.example:{tools.port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "",
        f"127.0.0.1.evil:{tools.port}",
    ):
        assert ask(tools, path, method, token=tools.token, host=host).status == 403
    for origin in (
        "http://evil.example",
        "null",
        f"https://{local}",
        "http://127.0.0.1",
        f"http://{local}.evil.example",
    ):
        assert ask(tools, path, method, token=tools.token, Origin=origin).status == 403
    assert authority.last_seq == before


def test_the_own_names_are_let_through(standing):
    _, tools = standing
    for host in (
        f"127.0.0.1:{tools.port}",
        f"localhost:{tools.port}",
        f"LOCALHOST:{tools.port}",
        f"[::1]:{tools.port}",
    ):
        assert ask(tools, "/healthz", host=host, Origin=f"http://{host}").status == 200


def test_two_hosts_are_one_too_many(standing):
    _, tools = standing
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nHost: evil\r\n\r\n" % tools.port)
        assert raw.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize("method", ["OPTIONS", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_refused(standing, method):
    _, tools = standing
    answer = ask(tools, "/api/tasks", method)
    assert answer.status in (400, 405)
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_forbids_what_a_page_does_not_need(standing):
    _, tools = standing
    for path in ("/", "/page/main.js", "/api/tasks", "/nothing", "/api/tasks?limit=x"):
        headers = ask(tools, path, Origin=f"http://127.0.0.1:{tools.port}").headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers
        assert not any(name.startswith("access-control") for name in headers)


def test_a_long_body_is_refused(standing):
    _, tools = standing
    answer = ask(tools, "/api/periodics/x", "PUT", token=tools.token, body=b"x" * (guard.MAX_BODY_BYTES + 1))
    assert answer.status == 413


def test_a_long_head_is_refused(standing):
    _, tools = standing
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (2 * protocol.MAX_HEAD_BYTES))
        assert raw.recv(100).split()[1] == b"400"


def test_who_never_finishes_asking_is_cut_off(standing, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.1)
    _, tools = standing
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        assert closed(raw)
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        assert closed(raw)
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % tools.port)
        assert b"200 OK" in raw.recv(10_000)
        raw.sendall(b"GET /hea")
        assert closed(raw)


def test_a_body_that_does_not_come_is_not_waited_for(standing, monkeypatch):
    monkeypatch.setattr(guard, "BODY_TIMEOUT_S", 0.1)
    _, tools = standing
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        raw.sendall(b"PUT /api/periodics/x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 9\r\n\r\n{" % tools.port)
        assert raw.recv(100).split()[1] == b"408"


def test_a_viewer_that_does_not_read_is_cut_off(monkeypatch):
    monkeypatch.setattr(guard, "SEND_TIMEOUT_S", 0.2)
    with served(slots=1) as (authority, tools, gate):
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.settimeout(10)
            raw.connect(("127.0.0.1", tools.port))
            raw.sendall(
                b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: text/event-stream\r\n\r\n" % tools.port
            )
            authority.submit(gate)
            for index in range(4_000):  # more than the buffers on the way can hold
                authority.submit(int, id=f"{'long name ' * 300}{index}")
            # The server lets go of the connection while we still have not read a byte.
            until(lambda: cut_off(raw))
        assert get(tools, "/healthz") == {"status": "ok"}


def cut_off(raw):
    """Whether the other end has reset the connection, without taking much of what it sent."""
    try:
        raw.send(b"\r\n")
    except OSError:
        return True
    return False


def closed(raw):
    """Whether the other end has hung up, with or without a last word."""
    try:
        while raw.recv(10_000):
            pass
    except ConnectionResetError:
        return True
    return True


def test_the_token_is_in_no_log_and_no_answer(caplog):
    caplog.set_level(logging.DEBUG)
    with served() as (_, tools, _):
        ask(tools, "/api/tasks/nobody/cancel", "POST", token=tools.token)
        ask(tools, f"/?token={tools.token}")
        ask(tools, "/api/tasks/x/cancel", "POST", token="wrong")
        assert tools.token not in repr(tools)
        assert tools.token not in str(get(tools, "/api/info"))
        assert tools.token not in caplog.text


def test_each_run_has_a_token_of_its_own():
    with served() as (_, first, _), served() as (_, second, _):
        assert first.token != second.token
        assert len(first.token) >= 32
        assert ask(second, "/api/tasks/x/cancel", "POST", token=first.token).status == 401


def test_another_address_needs_to_be_asked_for_and_says_what_it_means(caplog):
    with Authority() as authority:
        with pytest.raises(ConfigError, match="everybody there could read this run"):
            authority.devtools(host="0.0.0.0")
        tools = authority.devtools(host="0.0.0.0", expose=True, hosts=["box.example"], announce=False)
        assert "whoever reaches port" in caplog.text
        assert ask(tools, "/healthz", host=f"10.1.2.3:{tools.port}").status == 200
        assert ask(tools, "/healthz", host=f"box.example:{tools.port}").status == 200
        assert ask(tools, "/healthz", host=f"evil.example:{tools.port}").status == 403


def test_a_port_that_is_taken_or_absurd_is_a_clear_error():
    with served() as (authority, tools, _):
        with pytest.raises(ConfigError, match="choose another port"):
            authority.devtools(tools.port, announce=False)
        with pytest.raises(ConfigError, match="port 70000"):
            authority.devtools(70_000)
        with pytest.raises(ConfigError, match="cannot listen"):
            authority.devtools(host="no.such.host.invalid", expose=True)


def test_the_server_starts_and_stops_with_the_authority(capsys):
    gate = Gate()
    with Authority(slots=1) as authority:
        tools = authority.devtools()
        printed = capsys.readouterr().err
        assert printed == f"DevTools: http://127.0.0.1:{tools.port}/#token={tools.token}\n"
        authority.submit(gate)
        gate.open()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", tools.port), 10)
    tools.close()  # once more is fine


def test_without_the_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "whywait.devtools.server", None)
    with Authority() as authority, pytest.raises(Exception, match=r"whywait\[devtools\]"):
        authority.devtools()


EVERY_METHOD = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "BREW"]


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_no_method_changes_anything_without_a_token(standing, method):
    """V6: on every path, known or not; what is not a read is refused."""
    authority, tools = standing
    before = (authority.last_seq, authority.stats())
    reads = {path for known, path in PATHS if known == "GET"}
    for path in [*(path for _, path in PATHS), "/nothing", "/api/tasks/first/explode"]:
        status = ask(tools, path, method, body=b"{}" if method in {"PUT", "POST", "PATCH"} else None).status
        assert 400 <= status < 500 or (method in {"GET", "HEAD"} and path in reads), (path, status)
    assert (authority.last_seq, authority.stats()) == before
