"""The commands that look at a served run: top, why, cancel, pause, resume, serve, run --devtools."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from devtools_client import Gate, get, served
from patience import until
from program import clean_environment
from terminal import Terminal
from whywait.bridges.jsonl import JsonLines
from whywait.cli import execute
from whywait.devtools import beacon
from whywait.devtools.remote import Remote

ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "120"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory, monkeypatch):
    """Beacons of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def farm():
    with served(slots=1) as (authority, tools, gate):
        tools.announce("farm.py")
        authority.submit(gate, id="train")
        gate.running.wait(10)
        authority.submit(int, id="wait\x1b[31m-here", priority="low")
        authority.submit(int, id="second")
        yield authority, tools


def whywait(*args, code=0):
    """Run the program here, which is quicker; return what it printed."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:
        assert execute(list(args)) == code, error.getvalue()
    return error.getvalue() if code else out.getvalue()


def test_why_names_the_holder(farm):
    _, tools = farm
    assert "by train" in whywait("why", "second", "--url", tools.url)
    assert "by train" in whywait("why", "default/second")
    answer = json.loads(whywait("why", "second", "--json", "--url", tools.base_url))
    assert answer["why"]["primary"] == "slot"


def test_top_once_shows_what_runs_and_what_waits_and_obeys_no_name(farm):
    text = whywait("top", "--sort", "name")
    assert "1 of 1 running, 2 waiting" in text
    assert re.search(r"second .* slot", text)
    assert "\x1b[31m" not in text
    picture = json.loads(whywait("top", "farm.py", "--json"))
    assert [task["id"] for task in picture["tasks"]] == ["train", "wait\x1b[31m-here", "second"]


def test_demo_leads_the_browser_to_its_page_without_the_token_on_its_command_line(monkeypatch, tmp_path):
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >> {seen}\nls -l "${{1#file://}}" >> {seen}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    whywait("demo", "--seconds", "0.3")
    address, rights = seen.read_text().splitlines()
    assert re.fullmatch(r"file://.*-open\.html", address)
    assert rights.startswith("-rw-------")
    assert not Path(address.removeprefix("file://")).exists()


def test_top_shows_named_resources_as_they_were_given():
    """B3, B6: those of sizes as sizes, those of numbers as numbers."""
    with served(slots=4, resources={"disk": "50GB", "seats": 3}) as (authority, tools, gate):
        tools.announce("disks.py")
        authority.submit(gate, id="copy", resources={"disk": "20GB", "seats": 1})
        text = whywait("top", "disks.py")
        assert re.search(r"disk .* 20.0 GB of 50.0 GB\n", text)
        assert re.search(r"seats .* 1 of 3\n", text)
        assert re.search(r"copy .* disk 20.0 GB, seats 1", text)
        gate.open()


def test_top_shows_each_card_with_the_tasks_on_it():
    """N5, V6: a gauge for each unit; what a task holds says which it has."""
    with served(slots=4, gpus=["24GB", "24GB"], devices={"rig": ["a"]}) as (authority, tools, gate):
        tools.announce("cards.py")
        authority.submit(gate, id="lora", vram="6GB")
        authority.submit(gate, id="train", gpu=1, devices={"rig": 1})
        authority.submit(gate, id="next", gpu=1)
        authority.resize(gpus={"0": "24GB"})
        text = whywait("top", "cards.py")
        assert re.search(r"gpu 0 .* 6.0 GB of 24.0 GB ← lora", text)
        assert re.search(r"gpu 1 .* gone, 24.0 GB of 24.0 GB ← train", text)
        assert re.search(r"rig a .* taken ← train", text)
        assert re.search(r"train .* gpu 1, rig a", text)
        assert re.search(r"next .* gpu ← lora, train", text)
        gate.open()


def test_pause_resume_and_cancel_from_another_terminal(farm):
    authority, tools = farm
    handle = authority.get("second")
    assert whywait("pause", "second") == "second: paused\n"
    assert handle.state == "PAUSED"
    assert whywait("resume", "second", "--url", tools.url) == "second: resumed, it waits\n"
    assert json.loads(whywait("cancel", "second", "--json"))["state"] == "aborted"
    assert handle.outcome == "aborted"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["why", "nobody"], "nobody"),
        (["why", "second", "--url", "http://127.0.0.1:1/"], "does not answer"),
        (["why", "second", "--url", "ftp://x"], "no address of DevTools"),
        (["why", "second", "--url", "http://[x"], "no address of DevTools"),
        (["top", "other.toml"], "no served run of 'other.toml' was found"),
        (["resume", "second"], "nothing to resume"),
        (["serve", "no-such-file"], "no such file"),
    ],
)
def test_what_goes_wrong_is_one_plain_line(farm, args, said):
    error = whywait(*args, code=2)
    assert said in error
    assert len(error.splitlines()) == 1


def test_an_address_without_its_token_does_for_a_run_of_ones_own_and_for_no_other(farm, tmp_path, monkeypatch):
    authority, tools = farm
    assert "paused" in whywait("pause", "second", "--url", tools.base_url)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for verb in ("why", "resume"):
        assert "--token-file" in whywait(verb, "second", "--url", tools.base_url, code=2)
    assert authority.get("second").state == "PAUSED"
    kept = tmp_path / "token"
    for text in (tools.token, f"{tools.token}\n", f"DevTools: {tools.url}\n"):
        kept.write_text(text)
        assert "resume" in whywait("why", "second", "--url", tools.base_url, "--token-file", str(kept))
    assert "resumed" in whywait("resume", "second", "--url", tools.base_url, "--token-file", str(kept))
    assert "second" in whywait("top", tools.base_url, "--once", "--token-file", str(kept))
    for text, said in (("", "holds no token"), ("a\x00b", "holds no token"), ("wrong", "--token-file")):
        kept.write_text(text)
        assert said in whywait("why", "second", "--url", tools.base_url, "--token-file", str(kept), code=2)
    assert "cannot be read" in whywait("top", tools.base_url, "--token-file", str(tmp_path / "none"), code=2)


def test_beacons_are_private_and_go_out():
    with served() as (_, tools, _):
        tools.announce("farm.py")
        (path,) = beacon.folder().iterdir()
        assert path.stat().st_mode & 0o077 == 0
        assert beacon.folder().stat().st_mode & 0o077 == 0
        assert beacon.find("farm.py").url == tools.url
        (path.parent / "1-2.json").write_text(json.dumps(dict(beacon.find(None)._asdict(), pid=2**22 + 1)))
        assert len(beacon.living()) == 1
        assert not (path.parent / "1-2.json").exists()
    assert beacon.living() == []


WRONG_BEACONS = (
    "", "[]", "3", "null", "{", "[" * 5000, '{"url": "u"}', '"' + "x" * 200_000, '{"url": 1, "file": 2, "name": 3}',
    *(
        json.dumps({"url": "u", "file": "", "name": "", "pid": 1, **wrong})
        for wrong in (
            {"pid": "1"}, {"pid": True}, {"pid": -1}, {"pid": 10**17}, {"more": 1}, {"url": 5},
            {"name": []}, {"url": "http://" + "x" * 1000}, {"url": "http://\x1b[31m"},
        )
    ),
)  # fmt: skip


@pytest.mark.parametrize("text", WRONG_BEACONS, ids=lambda text: text[:40])
def test_a_beacon_of_a_wrong_shape_is_passed_over(farm, text):
    (beacon.folder() / "0-0.json").write_text(text)
    assert "second" in whywait("top", "--once")


@pytest.mark.parametrize("url", ["http://a b:1/", "http://[::1", "http://x:99999", "http://"])
def test_a_beacon_with_an_address_that_is_none_is_told_in_one_line(url):
    beacon.light("http://127.0.0.1:1/", "odd")
    (path,) = beacon.folder().iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "url": url}))
    assert re.fullmatch("whywait: .*(no address|does not answer).*\n", whywait("top", code=2))
    beacon.put_out(path)


def test_a_pipe_among_the_beacons_is_passed_over(farm):
    os.mkfifo(beacon.folder() / "0-0.json")
    assert "by train" in whywait("why", "second")


@pytest.mark.parametrize(
    "answer",
    ["[]", "null", '"x"', "{}", '{"tasks": 1}', '{"tasks": [{}], "total": 1, "seq": 1, "next": null}', "[" * 100_000,
     '{"text": 1, "task": {}}', '{"done": 1, "state": 2}',
     '{"tasks": [], "total": 0, "seq": ' + "[" * 900 + "]" * 900 + "}"],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 404])
def test_an_address_where_something_else_answers_is_told_in_one_line(answer, status):
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer.encode())

        do_POST = do_GET  # noqa: N815 - the standard library's

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for words in (("top", url), ("why", "task", "--url", url), ("cancel", "task", "--url", url)):
            assert re.fullmatch("whywait: [^\n]*\n", whywait(*words, code=2))
        server.shutdown()


def test_a_folder_of_beacons_that_others_can_write_is_refused(farm):
    beacon.folder().chmod(0o777)
    assert "can be written by other users" in whywait("top", "--once", code=2)


def test_top_on_a_terminal_takes_keys_and_leaves_it_clean(farm):
    authority, _ = farm
    with Terminal("top", columns=100, rows=30, env=dict(os.environ)) as terminal:
        terminal.until("second")
        press(terminal, b"s")
        terminal.until("waiting, by priority")
        press(terminal, b"s")
        terminal.until("waiting, by name")
        press(terminal, b"j")
        press(terminal, b"\x1b[B")
        press(terminal, b"w")
        terminal.until("second has waited")
        press(terminal, b"c")
        terminal.until("second: cancelled")
        press(terminal, b"q")
        assert terminal.end() == 0
        assert terminal.is_clean()
    assert authority._core.last_seq


def press(terminal, key):
    os.write(terminal.parent, key)


def started(program):
    """Return the address that a program prints on stderr."""
    for line in program.stderr:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/(#token=[\w-]+)?", line)
        if found:
            return found[0]
    raise AssertionError("it printed no address")


def spawn(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "whywait", *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=clean_environment(),
    )  # fmt: skip


def test_run_devtools_serves_the_run_while_it_lasts(tmp_path):
    flow = tmp_path / "flow.toml"
    flow.write_text(
        'slots = 1\n[task.first]\nrun = "sleep 30"\n[task.second]\nrun = "true"\npriority = "low"\n', encoding="utf-8"
    )
    with spawn("run", str(flow), "--devtools", "--events", str(tmp_path / "run.jsonl")) as program:
        started(program)
        until(lambda: "second" in whywait("top", str(flow)))
        assert "by first" in whywait("why", "second")
        whywait("cancel", "first")
        assert program.wait(60) == 1
    assert "no served run" in whywait("top", str(flow), code=2)
    with spawn("serve", str(tmp_path / "run.jsonl")) as server:
        text = whywait("why", "second", "--url", started(server))
        assert "second succeeded" in text
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_serve_runs_a_workflow_and_stays(tmp_path):
    flow = tmp_path / "flow.toml"
    flow.write_text('[task.only]\nrun = "true"\n', encoding="utf-8")
    with spawn("serve", str(flow)) as server:
        url = started(server)  # the one server there is, before and after the end
        remote = Remote(url)
        until(lambda: remote.get("/api/info")["finished"])
        assert "only succeeded" in whywait("why", "only", "--url", url)
        assert "only succeeded" in whywait("why", "only", "--url", str(flow))
        assert "has ended already (success), nothing was changed" in whywait("cancel", "only", "--url", url)
        assert "the run is over" in whywait("top", str(flow))
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_a_record_and_a_file_of_events_know_the_limits_of_their_run(tmp_path):
    """V3: those that were set; an old file of events, without its first line, does not."""
    from whywait import Authority
    from whywait.devtools.saved import SavedRun
    from whywait.devtools.server import DevTools

    record, events = tmp_path / "record", tmp_path / "events.jsonl"
    with Authority(slots=3, cpu=2, vram="6GB", record=record, events_file=events) as authority:
        authority.submit(int, cpu=1).result(10)
    old = tmp_path / "old.jsonl"
    old.write_text(events.read_text().partition("\n")[2])
    known = {"slot": (3, False), "cpu": (2, False), "vram": (6_000_000_000, True)}
    for path, limits in ((record, known), (events, known), (old, {"slot": (None, False)})):
        with DevTools(SavedRun.from_file(path)) as tools:
            answer = get(tools, "/api/budget")
            gates = [answer["slots"], *answer["budget"]]
            assert {gate["name"]: (gate["limit"], gate["soft"]) for gate in gates} == limits
            assert [row["outcome"] for row in get(tools, "/api/tasks")["tasks"]] == ["success"]


def test_a_saved_run_answers_like_a_living_one(tmp_path):
    from whywait import Authority
    from whywait.devtools.saved import SavedRun
    from whywait.devtools.server import DevTools

    path = tmp_path / "events.jsonl"
    gate = Gate()
    with Authority(slots=1) as authority, JsonLines(authority, path):
        first = authority.submit(gate, id="first")
        gate.running.wait(10)
        second = authority.submit(int, id="second", after=[first])
        gate.open()
        second.result(10)
    with DevTools(SavedRun.from_file(path)) as tools:
        assert get(tools, "/api/info")["mode"] == "saved"
        answer = get(tools, "/api/tasks/second")
        assert answer["task"]["outcome"] == "success"
        assert list(answer["why"]["breakdown"]) == ["dependency"]
        assert get(tools, "/api/report")["outcomes"] == {"success": 2}
        assert get(tools, "/api/snapshot")["counts"]["running"] == 0
        events = get(tools, "/api/events")["events"]
        assert len(events) == len(path.read_text().splitlines()) - 1  # the first has the limits


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "holds no events"), ('{"seq": 1}\n', "bad.jsonl:1: time_ns is missing"), ("x\n", "is not an event")],
)
def test_a_file_that_is_no_saved_run_is_refused(tmp_path, text, said):
    from whywait import ConfigError
    from whywait.devtools.saved import SavedRun

    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        SavedRun.from_file(path)
