"""Who may talk to DevTools, how much, and how slowly."""

import logging
import socket

import pytest

from devtools_client import Gate, ask, get, served
from patience import until
from whywait import Authority, ConfigError
from whywait.devtools import access, connections
from whywait.devtools.api import ROUTES


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
    before = authority._core.last_seq
    local = f"127.0.0.1:{tools.port}"
    for host in (
        "evil.example",
        f"evil.example:{tools.port}",
        "",
        ":80",
        f"127.0.0.1.evil:{tools.port}",
        "[::2]",
    ):
        assert ask(tools, path, method, token=tools.token, host=host).status == 403
    for origin in (
        "http://evil.example",
        "null",
        "file://",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        f"http://localhost:{tools.port}",
        f"http://{local}.evil.example",
    ):
        assert ask(tools, path, method, token=tools.token, Origin=origin).status == 403
    for site in ("cross-site", "same-site", "elsewhere"):
        assert ask(tools, path, method, token=tools.token, Sec_Fetch_Site=site).status == 403
    assert authority._core.last_seq == before


def test_the_own_names_are_let_through_whatever_the_port(standing):
    """An SSH tunnel may end on another local port: against rebinding the name counts."""
    _, tools = standing
    for host in (
        f"127.0.0.1:{tools.port}",
        f"localhost:{tools.port}",
        f"LOCALHOST:{tools.port}",
        f"[::1]:{tools.port}",
        "localhost:9000",
        "127.0.0.1",
        "[::1]",
    ):
        answer = ask(
            tools, "/api/info", token=tools.token, host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin"
        )
        assert answer.status == 200


FOREIGN_REQUESTS = {
    "an image": {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"},
    "a script": {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"},
    "a fetch": {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "empty"},
    "a frame": {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    "a form": {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Origin": "http://evil.example"},
}


@pytest.mark.parametrize("how", FOREIGN_REQUESTS)
@pytest.mark.parametrize("path", ["/", "/page/main.js", "/healthz", "/metrics", "/api/info"])
def test_a_foreign_site_gets_nothing_in_no_way(standing, how, path):
    _, tools = standing
    headers = {"Sec_Fetch_Site": "cross-site", **FOREIGN_REQUESTS[how]}
    assert ask(tools, path, **headers).status == 403
    assert ask(tools, path, token=tools.token, **headers).status == 403


def test_a_link_from_somewhere_else_opens_the_page_and_nothing_but_the_page(standing):
    _, tools = standing
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(tools, "/", **followed).status == 200
    for path in ("/api/info", "/metrics", "/page/main.js", "/openapi.json"):
        assert ask(tools, path, **followed).status == 403


OPEN = {"/", "/page/main.js", "/healthz"}


@pytest.mark.parametrize(("method", "path"), PATHS, ids=lambda part: part)
@pytest.mark.parametrize("token", [None, "", "wrong", "é"])
def test_v6_nothing_is_told_or_changed_without_the_token(standing, method, path, token):
    """V6: reading needs the token as changing does; only the page itself and the sign of life are there for all."""
    authority, tools = standing
    before = (authority._core.last_seq, authority.stats())
    answer = ask(tools, path, method, token=token, body={"enabled": False} if method == "PUT" else None)
    assert answer.status == (200 if path in OPEN else 401), answer.body
    if path not in OPEN:
        assert "token" in answer.json["error"]
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (authority._core.last_seq, authority.stats()) == before
    assert ask(tools, f"{path}?token={tools.token}", method).status in {200 if path in OPEN else 401, 400}


def test_metrics_are_open_if_that_is_asked_for():
    with Authority() as authority:
        tools = authority.devtools(open_metrics=True, announce=False)
        assert ask(tools, "/metrics").status == 200
        assert ask(tools, "/metrics", Sec_Fetch_Site="cross-site").status == 403
        assert ask(tools, "/api/info").status == 401


def test_two_hosts_are_one_too_many(standing):
    _, tools = standing
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nHost: evil\r\n\r\n" % tools.port)
        assert raw.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize("method", ["OPTIONS", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_refused(standing, method):
    _, tools = standing
    answer = ask(tools, "/api/tasks", method, token=tools.token)
    assert answer.status in (400, 404, 405)
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_forbids_what_a_page_does_not_need(standing):
    _, tools = standing
    for path in ("/", "/page/main.js", "/api/tasks", "/nothing", "/api/tasks?limit=x"):
        headers = ask(tools, path, token=tools.token, Origin=f"http://127.0.0.1:{tools.port}").headers
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
    answer = ask(tools, "/api/periodics/x", "PUT", token=tools.token, body=b"x" * (access.MAX_BODY_BYTES + 1))
    assert answer.status == 413


@pytest.mark.parametrize("size", [access.MAX_HEAD_BYTES + 1, 30_000, 60_000, 200_000])
@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["unfinished", "finished"])
def test_a_long_head_is_refused(standing, size, end):
    _, tools = standing
    head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * size + end
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        raw.sendall(head)
        assert raw.recv(100).split()[1] in (b"400", b"431")


def test_a_long_address_is_refused(standing):
    _, tools = standing
    assert ask(tools, "/" * access.MAX_HEAD_BYTES).status == 431
    assert ask(tools, f"/healthz?{'x' * access.MAX_HEAD_BYTES}").status == 431


def test_who_never_finishes_asking_is_cut_off(standing, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.1)
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
    monkeypatch.setattr(access, "BODY_TIMEOUT_S", 0.1)
    _, tools = standing
    with socket.create_connection(("127.0.0.1", tools.port), 10) as raw:
        head = f"PUT /api/periodics/x HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {tools.token}\r\n"
        raw.sendall(f"{head}Content-Length: 9\r\n\r\n{{".encode())
        assert raw.recv(100).split()[1] == b"408"


def test_a_viewer_that_does_not_read_is_cut_off(monkeypatch):
    monkeypatch.setattr(connections, "SEND_TIMEOUT_S", 0.2)
    with served(slots=1) as (authority, tools, gate):
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.settimeout(10)
            raw.connect(("127.0.0.1", tools.port))
            head = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {tools.token}\r\n"
            raw.sendall(f"{head}Accept: text/event-stream\r\n\r\n".encode())
            authority.submit(gate)
            for index in range(13_000):  # more than the buffers on the way can hold
                authority.submit(int, id=f"{'long name ' * 90}{index}")
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


def test_a_token_may_be_ones_own_if_it_cannot_be_guessed():
    with Authority() as authority:
        own = "a-token_of-my-0wn-x"
        assert get(authority.devtools(token=own, announce=False), "/healthz")
        assert ask(authority.devtools(token=own, announce=False), "/api/info", token=own).status == 200
        for bad in ("", "short", "with spaces in it, though long", "x" * 15, 5, "ü" * 20):
            with pytest.raises(ConfigError, match="at least 16 letters"):
                authority.devtools(token=bad)


def test_another_address_needs_to_be_asked_for_and_says_what_it_means(caplog):
    with Authority() as authority:
        with pytest.raises(ConfigError, match="nothing is encrypted"):
            authority.devtools(host="0.0.0.0")
        tools = authority.devtools(host="0.0.0.0", expose=True, hosts=["box.example"], announce=False)
        assert "nothing is encrypted" in caplog.text
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
    """V6: on every path, known or not."""
    authority, tools = standing
    before = (authority._core.last_seq, authority.stats())
    for path in [*(path for _, path in PATHS), "/nothing", "/api/tasks/first/explode"]:
        status = ask(tools, path, method, body=b"{}" if method in {"PUT", "POST", "PATCH"} else None).status
        assert 400 <= status < 500 or (method in {"GET", "HEAD"} and path in OPEN), (path, status)
    assert (authority._core.last_seq, authority.stats()) == before
