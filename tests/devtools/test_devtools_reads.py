"""The read API of DevTools: what it tells is what the authority knows, and no more."""

import threading
import time

import pytest

from devtools_client import ask, get, served
from patience import PATIENCE_S, until
from whywait import Authority, Infeasible
from whywait.devtools.api import ROUTES
from whywait.devtools.metrics import prefers_json
from whywait.support.units import in_ms

GB = 10**9


def boom():
    raise OSError("password123")


@pytest.fixture(scope="module")
def standing():
    """A run in which nothing changes, for questions that change nothing."""
    with served() as (authority, tools, gate):
        authority.submit(gate, id="first")
        yield tools


@pytest.fixture
def farm():
    with served(slots=2, vram="6GB") as (authority, tools, gate):
        authority.submit(gate, "argument-secret", id="train", vram="4.5GB")
        gate.running.wait(10)
        upscale = authority.submit(str.upper, "frames", id="upscale", vram="4GB", priority="high")
        authority.submit(str.lower, upscale, id="pack")
        yield authority, tools, gate


def test_v6_one_task_says_why_it_waits_in_which_lane_and_for_whom(farm):
    """V6: the answer for a waiting task names its lane, the closed gate and its holder."""
    _, tools, _ = farm
    answer = get(tools, "/api/tasks/upscale")
    assert answer["task"]["waits_for"] == "vram"
    assert answer["why"]["lane"] == [80, "default", {"vram": 4_000_000_000}]
    (reason,) = answer["why"]["reasons"]
    assert [holder["id"] for holder in reason["holders"]] == ["train"]
    assert "held by train" in answer["text"]
    assert [row["id"] for row in answer["awaited_by"]] == ["pack"]
    assert [event["kind"] for event in answer["story"]] == ["TASK_SUBMITTED"]


def test_a_task_that_came_while_the_feed_rests_is_found_by_its_id(farm):
    authority, tools, _ = farm
    tools._feed._rest_until_ns = time.monotonic_ns() + 10**12
    authority.submit(int, id="late", vram="4GB")
    answer = get(tools, "/api/tasks/late")
    assert (answer["task"]["state"], answer["why"]["primary"]) == ("READY", "vram")
    assert ask(tools, "/api/tasks/late/cancel", "POST", token=tools.token).json["state"] == "aborted"


def test_a_dependent_names_whom_it_awaits(farm):
    _, tools, _ = farm
    answer = get(tools, "/api/tasks/default%2Fpack")
    assert [row["id"] for row in answer["awaits"]] == ["upscale"]
    assert answer["task"]["waits_for"] == "dependency"


def test_a_finished_task_tells_how_its_wait_divided(farm):
    authority, tools, gate = farm
    gate.open()
    authority.get("pack").result(10)
    answer = until(lambda: (a := get(tools, "/api/tasks/upscale"))["task"]["outcome"] and a)
    task = answer["task"]
    assert task["outcome"] == "success"
    assert sum(task["waits"].values()) == task["started_ns"] - task["submitted_ns"]
    assert "upscale succeeded" in answer["text"]
    assert [event["kind"] for event in answer["story"]] == ["TASK_SUBMITTED", "TASK_STARTED", "TASK_FINISHED"]


def test_the_snapshot_pictures_running_lanes_budget_and_scopes(farm):
    _, tools, _ = farm
    snapshot = get(tools, "/api/snapshot")
    assert snapshot["counts"] == {"running": 1, "ready": 1, "not_ready": 1, "starved": 0}
    (lane,) = snapshot["lanes"]
    assert (lane["priority"], lane["waits_for"], [task["id"] for task in lane["tasks"]]) == (80, "vram", ["upscale"])
    (vram,) = get(tools, "/api/budget")["budget"]
    assert (vram["limit"], vram["free"], vram["soft"]) == (6_000_000_000, 1_500_000_000, True)
    assert [holder["id"] for holder in vram["holders"]] == ["train"]
    assert [scope["key"] for scope in get(tools, "/api/scopes")["scopes"]] == ["default"]
    assert get(tools, "/api/lanes")["lanes_total"] == 1
    assert get(tools, "/api/report")["outcomes"]["pending"] == 3
    assert get(tools, "/healthz") == {"status": "ok"}


def test_devices_are_in_every_answer_that_tells_of_the_budget():
    """N5, V4, V5: snapshot, budget, tasks, why, events, metrics."""
    with served(slots=4, gpus=["24GB", "12GB"], devices={"rig": ["a"]}) as (authority, tools, gate):
        authority.submit(gate, id="lora", vram="6GB")
        authority.submit(gate, id="both", gpu=2)
        card, small, rig = get(tools, "/api/budget")["devices"]
        assert (small["kind"], small["name"], small["size"], small["free"]) == ("gpu", "1", 12 * GB, 6 * GB)
        assert [holder["id"] for holder in small["holders"]] == ["lora"]
        assert (card["used"], rig["kind"], get(tools, "/api/snapshot")["devices_total"]) == (0, "rig", 3)
        assert get(tools, "/api/tasks/lora")["task"]["devices"] == {"gpu": ["1"]}
        waiting = get(tools, "/api/tasks/both")
        assert "only 1 gpu of the 2 that it needs is free: gpu 0 has 24.0 of 24.0 GB free" in waiting["text"]
        assert [unit["name"] for unit in waiting["why"]["reasons"][0]["units"]] == ["0", "1"]
        (started,) = [each for each in get(tools, "/api/tasks/lora")["story"] if each["kind"] == "TASK_STARTED"]
        assert started["details"] == {"devices": {"gpu": ["1"]}}
        metrics = ask(tools, "/metrics", token=tools.token, Accept="application/json").json["scheduler"]["devices"]
        assert metrics[1] == {
            "kind": "gpu",
            "name": "1",
            "size": 12 * GB,
            "used": 6 * GB,
            "present": True,
            "holders_total": 1,
        }
        text = ask(tools, "/metrics", token=tools.token, Accept="").body
        assert b'whywait_device_memory_used_bytes{kind="gpu",unit="1"} 6e+09' in text
        assert b'whywait_device_tasks{kind="rig",unit="a"} 0.0' in text
        gate.open()


def test_tasks_are_filtered_searched_and_paged():
    with served(slots=1) as (authority, tools, gate):
        scope = authority.scope("other")
        authority.submit(gate, id="first")
        for index in range(5):
            scope.submit(int, id=f"sweep-{index}", priority=20)

        def ids(query):
            return [row["id"] for row in get(tools, f"/api/tasks?{query}")["tasks"]]

        assert ids("state=RUNNING") == ["first"]
        assert ids("state=waiting&scope=other&priority=20") == [f"sweep-{index}" for index in range(5)]
        assert ids("q=SWEEP-3") == ["sweep-3"]
        assert ids("q=other/sweep&limit=2") == ["sweep-0", "sweep-1"]
        page = get(tools, "/api/tasks?limit=4")
        assert page["total"] == 6
        assert ids(f"after={page['next']}") == ["sweep-3", "sweep-4"]
        assert ids("outcome=error") == []


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/tasks?limit=0", 400, "limit"),
        ("/api/tasks?limit=9999999999999999999999", 400, "limit"),
        ("/api/tasks?state=ASLEEP", 400, "READY"),
        ("/api/tasks?priority=-1", 400, "0 to 100"),
        ("/api/tasks?colour=red", 400, "colour"),
        ("/api/tasks?q=a&q=b", 400, "2 times"),
        ("/api/tasks/nobody", 404, "nobody"),
        ("/api/events?since=x", 400, "since"),
        ("/api/nothing", 404, "openapi"),
        ("/page/..%2Fserver.py", 404, "nothing at"),
        ("/page/server.py", 404, "nothing at"),
    ],
)
def test_a_bad_request_is_told_what_was_wrong(standing, path, status, said):
    answer = ask(standing, path, token=standing.token)
    assert answer.status == status
    assert said in answer.json["error"]


def test_an_ambiguous_id_is_refused_with_the_choices(farm):
    authority, tools, gate = farm
    authority.scope("other").submit(gate, id="upscale")
    answer = ask(tools, "/api/tasks/upscale", token=tools.token)
    assert answer.status == 409
    assert "other/upscale" in answer.json["error"]
    assert get(tools, "/api/tasks/other/upscale")["task"]["scope"] == "other"


def test_no_argument_result_or_error_text_is_in_any_answer(farm):
    """V3: no payloads, no arguments, no secrets, whatever is asked for."""
    authority, tools, gate = farm
    authority.submit(boom, id="boom").exception(10)
    gate.open()
    authority.get("pack").result(10)
    paths = [route.path.replace("{ref}", "train") for route in ROUTES if route.method == "GET"]
    told = b"".join(ask(tools, path, token=tools.token).body for path in (*paths, "/openapi.json", "/api/tasks/boom"))
    for secret in (b"argument-secret", b"secret result", b"password123", b"frames", tools.token.encode()):
        assert secret not in told


def test_v5_metrics_are_json_when_asked_for_and_prometheus_text_otherwise(farm):
    """V5: JSON with the scheduler's counters when JSON is asked for; Prometheus text otherwise."""
    authority, tools, _ = farm
    with pytest.raises(Infeasible):
        authority.submit(int, resources={"none": 1})
    answer = ask(tools, "/metrics", token=tools.token, Accept="application/json")
    scheduler = answer.json["scheduler"]
    assert answer.headers["content-type"] == "application/json"
    counts = [scheduler[name] for name in ("activeCount", "queuedCount", "notReadyCount")]
    assert (scheduler["enabled"], *counts) == (True, 1, 1, 1)
    assert (scheduler["totalSubmitted"], scheduler["totalCompleted"], scheduler["starvationPromotions"]) == (3, 0, 0)
    for accept in ("", "*/*", "text/plain", "application/openmetrics-text, text/plain;q=0.5, */*;q=0.1"):
        text = ask(tools, "/metrics", token=tools.token, Accept=accept)
        assert "json" not in text.headers["content-type"]
        assert b"whywait_tasks_submitted_total 3.0" in text.body
        assert b'whywait_tasks_rejected_total{reason="infeasible"} 1.0' in text.body
        assert b'whywait_tasks_ready{priority="80",reason="vram",scope="default"} 1.0' in text.body
        assert b'whywait_budget_used{resource="vram"}' in text.body
        assert b'whywait_budget_limit{resource="slots"} 2.0' in text.body


def test_v5_metrics_are_those_of_the_moment():
    """V5: each answer, as JSON and as text, has what `stats()` says then, also with more lanes than a picture shows."""
    go = threading.Event()
    with Authority(slots=1, resources={"room": 1000}) as authority:
        tools = authority.devtools(announce=False)
        handles = [authority.submit(go.wait)]
        until(lambda: handles[0].state == "RUNNING")
        for number in range(1, 6):
            handles += [authority.submit(int, resources={"room": number * 30 + lane}) for lane in range(30)]
            handles.append(authority.submit(int, after=[handles[-1]]))
            json, stats = ask_json(tools), authority.stats()
            names = ("activeCount", "queuedCount", "notReadyCount", "totalSubmitted", "totalCompleted")
            keys = ("active", "queued", "not_ready", "submitted", "completed")
            assert [json[name] for name in names] == [stats[key] for key in keys]
            assert json["byOutcome"] == stats["by_outcome"]
            text = ask(tools, "/metrics", token=tools.token, Accept="text/plain").body.decode()
            samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            ready = sum(float(value) for name, value in samples.items() if name.startswith("whywait_tasks_ready{"))
            assert ready == stats["queued"] == number * 30
            for name, key in (("running", "active"), ("not_ready", "not_ready"), ("submitted_total", "submitted")):
                assert float(samples[f"whywait_tasks_{name}"]) == stats[key]
        go.set()
        for handle in handles:
            handle.result(PATIENCE_S)
        assert ask_json(tools)["totalCompleted"] == len(handles)


def test_v5_enabled_says_whether_slots_are_bounded():
    """V5: not whether the run goes on."""
    with Authority(slots=None) as authority:
        tools = authority.devtools(announce=False)
        answer = ask(tools, "/metrics", token=tools.token, Accept="application/json")
        assert answer.json["scheduler"]["enabled"] is False


def test_v2_starvation_is_the_same_everywhere():
    """V2: stats, snapshot, report, metrics as JSON and as text, rows and why() tell the same numbers."""
    go = threading.Event()
    with Authority(slots=1, order="strict") as authority:
        tools = authority.devtools(announce=False)
        high = authority.submit(go.wait, priority="high")
        low = [authority.submit(int, priority="low", id=f"low{number}") for number in range(3)]
        until(lambda: low[0].why().starved_ns > 0)
        assert authority.stats()["starvation"]["now"] == authority.snapshot().starvation.now == 3
        row = ask(tools, "/api/tasks/low0", token=tools.token).json["task"]
        assert 0 < row["starved_ns"] <= low[0].why().starved_ns
        go.set()
        for handle in (high, *low):
            handle.result(PATIENCE_S)
        told = [handle.why().starved_ns for handle in low]
        expected = {"now": 0, "longest_ns": max(told), "total_ns": sum(told)}
        assert authority.stats()["starvation"] == authority.snapshot().starvation._asdict() == expected
        report = authority.report()["starved"]
        assert (report["now"], report["tasks"]) == (0, 3)
        assert (report["longest_ms"], report["total_ms"]) == (in_ms(max(told)), in_ms(sum(told)))
        assert sorted(row["ms"] for row in report["worst"]) == sorted(map(in_ms, told))
        assert ask_json(tools)["starvationTotalNs"] == sum(told)
        assert ask_json(tools)["starvationLongestNs"] == max(told)
        text = ask(tools, "/metrics", token=tools.token, Accept="text/plain").body.decode()
        samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert float(samples["whywait_starvation_longest_seconds"]) == max(told) / 1e9
        assert float(samples["whywait_starvation_seconds_total"]) == sum(told) / 1e9
        rows = ask(tools, "/api/tasks?q=low", token=tools.token).json["tasks"]
        assert {row["id"]: row["starved_ns"] for row in rows} == {handle.id: handle.why().starved_ns for handle in low}


def ask_json(tools):
    return ask(tools, "/metrics", token=tools.token, Accept="application/json").json["scheduler"]


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        ("application/json", True),
        ("application/json, text/plain;q=0.5", True),
        ("text/plain;q=0.5, application/json", True),
        ("application/json;q=0.9, text/*;q=0.5", True),
        ("APPLICATION/JSON ; q=1.0 , text/plain ; q=0.999", True),
        ("application/json, */*", True),
        ("application/json;q=0.5, */*;q=0.1", True),
        ("application/json;q=0.5, */*", False),
        ("application/json, text/plain", False),
        ("application/json;q=0.5, text/plain", False),
        ("application/json;q=0", False),
        ("application/json;q=nonsense", False),
        ("application/json;q=0.4, application/openmetrics-text;q=0.6", False),
        ("application/*", False),
        ("application/xml", False),
        ("", False),
        (",;,;q=,", False),
    ],
)
def test_v5_the_quality_values_of_the_header_count(accept, is_json):
    """V5: JSON when the Accept header prefers it, Prometheus text otherwise."""
    assert prefers_json(accept) == is_json


def test_histograms_count_waits_and_runs():
    with served() as (authority, tools, _):
        for _ in range(7):
            authority.submit(int, priority="low").result(10)
        authority.submit(boom).exception(10)
        text = until(
            lambda: (
                (a := ask(tools, "/metrics", token=tools.token).body)
                and b'run_seconds_count{outcome="error"' in a
                and a
            )
        )
        assert b'whywait_task_wait_seconds_count{priority="20",scope="default"} 7.0' in text
        assert b'whywait_task_run_seconds_count{outcome="success",priority="20",scope="default"} 7.0' in text
        assert b'whywait_task_run_seconds_count{outcome="error",priority="50",scope="default"} 1.0' in text


def test_scope_labels_are_bounded():
    with served() as (authority, tools, _):
        for index in range(60):
            with authority.scope(f"request-{index}") as scope:
                scope.submit(int)
        text = until(lambda: (a := ask(tools, "/metrics", token=tools.token).body.decode()) and "(other)" in a and a)
        assert text.count("whywait_task_wait_seconds_count{") == 51


def test_the_overview_stays_small_with_many_tasks():
    with served(slots=1) as (authority, tools, gate):
        authority.submit(gate)
        for index in range(3000):
            authority.submit(int, priority=index % 101, resources=None)
        snapshot = get(tools, "/api/snapshot")
        assert snapshot["counts"]["ready"] == 3000
        assert len(snapshot["lanes"]) == 100
        assert all(len(lane["tasks"]) <= 10 for lane in snapshot["lanes"])
        assert snapshot["lanes_total"] == 101
