"""The read API of DevTools: what it tells is what the authority knows, and no more."""

import time

import pytest

from devtools_client import ask, get, served
from patience import until
from whywait import Infeasible, Retry
from whywait.devtools.routes import ROUTES


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
    assert ask(tools, "/api/tasks/late/cancel", "POST", token=tools.token).json["state"] == "ABORTED"


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
    assert task["outcome"] == "SUCCESS"
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
        assert ids("outcome=ERROR") == []


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
    answer = ask(standing, path)
    assert answer.status == status
    assert said in answer.json["error"]


def test_an_ambiguous_id_is_refused_with_the_choices(farm):
    authority, tools, gate = farm
    authority.scope("other").submit(gate, id="upscale")
    answer = ask(tools, "/api/tasks/upscale")
    assert answer.status == 409
    assert "other/upscale" in answer.json["error"]
    assert get(tools, "/api/tasks/other/upscale")["task"]["scope"] == "other"


def test_attempts_are_told_apart():
    with served() as (authority, tools, _):
        handle = authority.submit(boom, id="flaky", retry=Retry(1))
        handle.exception(10)
        answer = until(lambda: (a := get(tools, "/api/tasks/flaky"))["task"]["attempt"] == 2 and a)
        assert [(row["attempt"], row["outcome"], row["cause"]) for row in answer["attempts"]] == [
            (1, "ERROR", "exception"),
            (2, "ERROR", "exception"),
        ]


def test_no_argument_result_or_error_text_is_in_any_answer(farm):
    """V3: no payloads, no arguments, no secrets, whatever is asked for."""
    authority, tools, gate = farm
    authority.submit(boom, id="boom").exception(10)
    gate.open()
    authority.get("pack").result(10)
    paths = [route.path.replace("{ref}", "train") for route in ROUTES if route.method == "GET"]
    told = b"".join(ask(tools, path).body for path in (*paths, "/openapi.json", "/api/tasks/boom"))
    for secret in (b"argument-secret", b"secret result", b"password123", b"frames", tools.token.encode()):
        assert secret not in told


def test_v5_metrics_are_json_when_asked_for_and_prometheus_text_otherwise(farm):
    """V5: JSON with the scheduler's counters when JSON is asked for; Prometheus text otherwise."""
    authority, tools, _ = farm
    with pytest.raises(Infeasible):
        authority.submit(int, resources={"none": 1})
    answer = ask(tools, "/metrics", Accept="application/json")
    scheduler = answer.json["scheduler"]
    assert answer.headers["content-type"] == "application/json"
    assert (scheduler["enabled"], scheduler["activeCount"], scheduler["queuedCount"]) == (True, 1, 2)
    assert (scheduler["totalSubmitted"], scheduler["totalCompleted"], scheduler["starvationPromotions"]) == (3, 0, 0)
    for accept in ("", "*/*", "text/plain", "application/openmetrics-text, text/plain;q=0.5, */*;q=0.1"):
        text = ask(tools, "/metrics", Accept=accept)
        assert "json" not in text.headers["content-type"]
        assert b"whywait_tasks_submitted_total 3.0" in text.body
        assert b'whywait_tasks_rejected_total{reason="infeasible"} 1.0' in text.body
        assert b'whywait_tasks_ready{priority="80",reason="vram",scope="default"} 1.0' in text.body
        assert b'whywait_budget_used{resource="vram"}' in text.body


def test_histograms_count_waits_and_runs():
    with served() as (authority, tools, _):
        for _ in range(7):
            authority.submit(int, priority="low").result(10)
        authority.submit(boom).exception(10)
        text = until(lambda: (a := ask(tools, "/metrics").body) and b'run_seconds_count{outcome="ERROR"' in a and a)
        assert b'whywait_task_wait_seconds_count{priority="20",scope="default"} 7.0' in text
        assert b'whywait_task_run_seconds_count{outcome="SUCCESS",priority="20",scope="default"} 7.0' in text
        assert b'whywait_task_run_seconds_count{outcome="ERROR",priority="50",scope="default"} 1.0' in text


def test_scope_labels_are_bounded():
    with served() as (authority, tools, _):
        for index in range(60):
            with authority.scope(f"request-{index}") as scope:
                scope.submit(int)
        text = until(lambda: (a := ask(tools, "/metrics").body.decode()) and "(other)" in a and a)
        assert text.count("whywait_task_wait_seconds_count{") == 51


def test_the_description_lists_what_there_is(standing):
    paths = get(standing, "/openapi.json")["paths"]
    assert {(path, method.upper()) for path in paths for method in paths[path]} == {
        (route.path, route.method) for route in ROUTES
    }


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
