"""Attacks on DevTools from the same machine, bounded and over loopback; the numbers are those that once did harm."""

import asyncio
import json
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

from devtools_client import Gate, Stream, ask, get, served
from patience import PATIENCE_S, until
from program import clean_environment
from whywait.devtools import connections, reads

ATTACKED = """
import json, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from whywait import Authority, Command

with Authority(slots=4) as authority:
    tools = authority.devtools(announce=False)
    print(json.dumps({"port": tools.port, "token": tools.token}), flush=True)
    for line in sys.stdin:
        handles = [authority.submit(Command(["true"])) for _ in range(int(line))]
        errors = [str(handle.exception()) for handle in handles if handle.exception() is not None]
        print(json.dumps(errors), flush=True)
"""


class Attacked:
    """A program with DevTools and few file descriptors, that runs commands when it is told to."""

    def __init__(self, limit):
        self._program = subprocess.Popen(
            [sys.executable, "-c", ATTACKED, str(limit)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment(),
        )  # fmt: skip
        self.__dict__.update(json.loads(self._program.stdout.readline()))

    def run_commands(self, count):
        """Return the errors of so many commands."""
        self._program.stdin.write(f"{count}\n")
        self._program.stdin.flush()
        return json.loads(self._program.stdout.readline())

    def close(self):
        self._program.stdin.close()
        self._program.stdout.close()
        self._program.wait(PATIENCE_S)


@contextmanager
def many_descriptors(wanted):
    """Let this process open so many files, if the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"the system lets this process open {hard} files, the attack needs {wanted}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def silent_connection(port):
    """Return a connection that says nothing; it need not stand yet."""
    raw = socket.socket()
    raw.setblocking(False)
    raw.connect_ex(("127.0.0.1", port))
    return raw


def test_1100_silent_connections_cost_the_process_no_file_descriptor_that_it_needs():
    with ExitStack() as stack:
        stack.enter_context(many_descriptors(3_000))
        attacked = Attacked(limit=128)
        stack.callback(attacked.close)
        assert attacked.run_commands(10) == []
        standing, stop = threading.Event(), threading.Event()

        def hold():
            address = ("127.0.0.1", attacked.port)
            held = [stack.enter_context(socket.create_connection(address, PATIENCE_S)) for _ in range(1_100)]
            while not stop.wait(0.05):
                for index in range(0, len(held), 11):  # those that were cut off come again
                    held[index].close()
                    held[index] = stack.enter_context(silent_connection(attacked.port))
                standing.set()

        attacker = threading.Thread(target=hold)
        attacker.start()
        try:
            assert standing.wait(PATIENCE_S)
            assert attacked.run_commands(257) == []
            assert get(attacked, "/api/info")["mode"] == "live", "who asks for something is let in meanwhile"
        finally:
            stop.set()
            attacker.join()


def test_a_silent_connection_is_closed_after_a_while(monkeypatch):
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.2)
    with served() as (_, tools, _), socket.create_connection(("127.0.0.1", tools.port), PATIENCE_S) as raw:
        assert raw.recv(1) == b""


def test_of_a_crowd_only_so_many_connections_are_held(monkeypatch):
    """Those that ask for something have their answer all the same."""
    most = 5
    seen = []
    made = connections.Connection.connection_made

    def counted(connection, transport):
        made(connection, transport)
        seen.append(len(connection.connections))

    monkeypatch.setattr(connections, "MOST_CONNECTIONS", most)
    monkeypatch.setattr(connections.Connection, "connection_made", counted)
    with served() as (_, tools, _), ExitStack() as stack:
        crowd = [stack.enter_context(silent_connection(tools.port)) for _ in range(100)]
        for _ in range(10):
            assert get(tools, "/healthz") == {"status": "ok"}
        assert max(seen) == most
        assert sum(is_open(each) for each in crowd) <= most


def is_open(raw):
    """Whether the other end has not closed a connection that does not block."""
    try:
        return raw.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_a_request_behind_silent_connections_that_come_in_one_batch_is_answered():
    """asyncio accepts what has queued up in one go, before any of it is served: none of it is known to be idle yet."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    async def answer(listener, client):
        server = connections.HttpServer()
        await server.listen(listener, app, most)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.get_running_loop().sock_recv(client, 1024)
        finally:
            await server.close()

    most = 5
    listener = connections.listen("127.0.0.1", 0)
    with ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(silent_connection(listener.getsockname()[1]))
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.setblocking(False)
        assert asyncio.run(answer(listener, client)).startswith(b"HTTP/1.1 204")


@pytest.mark.parametrize("announced", ["Content-Length: 10", "Transfer-Encoding: chunked"])
def test_a_crowd_that_announces_bodies_and_sends_none_makes_room(monkeypatch, announced):
    """Nothing is answered on such a connection yet, so it makes room for one that asks for something."""
    most = 5
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", most)
    head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n{announced}\r\n\r\n".encode()
    with served() as (_, tools, _), ExitStack() as stack:
        for _ in range(3 * most):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", tools.port), PATIENCE_S))
            with suppress(ConnectionError):
                raw.sendall(head)
        for _ in range(10):
            assert get(tools, "/healthz") == {"status": "ok"}


def test_connections_are_counted_whatever_event_loops_the_program_has(monkeypatch):
    """Loops of other libraries may accept any number of connections in one step."""

    def other_loop():
        raise AssertionError("a loop of the program's choice")

    monkeypatch.setattr(asyncio.events, "new_event_loop", other_loop)
    with served() as (_, tools, _):
        assert get(tools, "/healthz") == {"status": "ok"}


def test_what_is_no_http_after_an_answer_ends_the_connection_and_is_not_logged(caplog):
    with served() as (_, tools, _), socket.create_connection(("127.0.0.1", tools.port), PATIENCE_S) as raw:
        raw.sendall(b"POST /api/info HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert raw.recv(1_000).split()[1] == b"401"
        raw.sendall(b"no chunk\r\n")
        with suppress(ConnectionError):
            while raw.recv(1_000):
                pass
        assert get(tools, "/healthz") == {"status": "ok"}
    assert not caplog.records


def test_of_350_viewers_at_the_same_moment_100_are_let_in():
    with served() as (authority, tools, gate), ExitStack() as stack:
        stack.enter_context(many_descriptors(1_500))
        head = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {tools.token}\r\n"
        request = f"{head}Accept: text/event-stream\r\n\r\n".encode()
        viewers = [stack.enter_context(silent_connection(tools.port)) for _ in range(350)]
        answers = asked_all(viewers, request)
        assert set(answers) <= {b"200", b"503"}
        assert answers.count(b"200") == reads.MAX_VIEWERS
        authority.submit(gate)
        assert ask(tools, "/api/events", token=tools.token, Accept="text/event-stream").status == 503
        assert get(tools, "/api/info")["mode"] == "live"
        for viewer in viewers:
            viewer.close()
        until(lambda: is_let_in(tools), "that a viewer is let in after the others have left")


def is_let_in(tools):
    """Return whether a viewer of the event stream is told anything."""
    stream = Stream(tools)
    found = stream.next()
    stream.close()
    return found is not None


def asked_all(connections, request):
    """Send a request over each connection as soon as it stands; return the statuses of those that were answered."""
    watch = selectors.DefaultSelector()
    for connection in connections:
        watch.register(connection, selectors.EVENT_WRITE)
    statuses = []
    end = time.monotonic() + PATIENCE_S
    while watch.get_map() and time.monotonic() < end:
        for key, events in watch.select(1):
            try:
                if events & selectors.EVENT_WRITE:
                    key.fileobj.sendall(request)
                    watch.modify(key.fileobj, selectors.EVENT_READ)
                else:
                    answer = key.fileobj.recv(1_000)
                    watch.unregister(key.fileobj)
                    statuses += [answer.split()[1]] if answer else []
            except OSError:
                watch.unregister(key.fileobj)
    assert not watch.get_map()
    return statuses


@pytest.mark.parametrize("slashes", [60_000, 1_001])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/tasks/{}"),
        ("POST", "/api/tasks/{}/cancel"),
        ("POST", "/api/scopes/{}/suspend"),
        ("PUT", "/api/periodics/{}"),
    ],
)
def test_a_path_of_slashes_is_refused(slashes, method, path):
    """What a request makes the server do does not grow with the request."""
    with served() as (_, tools, _):
        body = {"enabled": True} if method == "PUT" else None
        answer = ask(tools, path.format("/" * slashes), method, token=tools.token, body=body)
        assert answer.status in (400, 431)
        assert "longer than" in answer.json["error"]


@pytest.mark.parametrize("size", [17_000, 60_000])
@pytest.mark.parametrize("where", ["header", "many headers", "query", "path"])
def test_a_head_of_more_than_16_kb_is_refused_in_whatever_form(size, where):
    with served() as (_, tools, _):
        path, headers = "/healthz", {}
        if where == "header":
            headers = {"X": "x" * size}
        elif where == "many headers":
            headers = {f"X{index}": "x" * 500 for index in range(size // 500)}
        elif where == "query":
            path += "?" + "x" * size
        else:
            path += "/" + "x" * size
        with suppress(ConnectionError):  # cut off before it had sent it all
            assert ask(tools, path, **headers).status in (400, 431)
        assert ask(tools, "/healthz").status == 200


SECRET = "hunter2-expanded-from-vars"


def failing():
    raise RuntimeError(f"login with {SECRET} was refused")


def test_no_text_of_an_error_or_a_command_is_told_without_the_token():
    """V6: the last error of a periodic is for the holder of the token, on every path and in the stream."""
    with served(slots=2) as (authority, tools, _):
        authority.scope("bench").periodic(failing, every=0.01, id="sample")
        until(lambda: SECRET in json.dumps(get(tools, "/api/periodics")))
        paths = ["/", "/healthz", "/metrics", "/openapi.json", "/api/events", "/api/snapshot", "/api/periodics"]
        for path in [*paths, "/api/tasks", "/api/tasks/@1", "/api/report", "/api/info", "/api/lanes", "/api/nothing"]:
            for accept in ("application/json", "text/event-stream", "text/html"):
                answer = ask(tools, path, Accept=accept)
                assert SECRET.encode() not in answer.body
                assert b"sample" not in answer.body or answer.status == 200
                assert answer.status == (200 if path in {"/", "/healthz"} else 401)


def test_a_crowd_that_asks_and_hangs_up_leaves_nothing_behind():
    with served() as (authority, tools, _):
        gate = Gate()
        authority.submit(gate)
        request = (
            f"GET /api/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {tools.token}\r\n\r\n".encode()
        )
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", tools.port), PATIENCE_S) as raw:
                raw.sendall(request)
        gate.open()
        until(lambda: get(tools, "/api/snapshot")["counts"]["running"] == 0)
