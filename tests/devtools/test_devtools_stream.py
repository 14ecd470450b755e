"""The event stream of DevTools: in order, resumable, honest about what is missing; and the table made of it."""

import http.client
import json
import threading

from devtools_client import Gate, Stream, ask, get, served
from patience import until
from whywait import Authority, Retry
from whywait.devtools.feed import Feed
from whywait.devtools.table import ROW, TaskTable, picture


def test_a_viewer_sees_every_event_in_order_and_then_the_end():
    """V3: one ordered stream, seq strictly increasing, the same as the authority remembers."""
    with Authority(slots=1) as authority:
        tools = authority.devtools(announce=False)
        stream = Stream(tools)
        assert stream.response.getheader("content-type").startswith("text/event-stream")
        for index in range(50):
            authority.submit(int, id=f"t{index}").result(10)
        authority.dispose()
        told = [event.to_dict() for event in authority.events()]
    messages = list(iter(stream.next, None))
    stream.close()
    assert messages.pop()[0] == "finished"
    assert [kind for kind, _, _ in messages] == ["message"] * len(messages)
    assert [data for _, _, data in messages] == json.loads(json.dumps(told))
    assert [int(ident) for _, ident, _ in messages] == [event["seq"] for event in told]


def test_a_viewer_resumes_after_the_last_event_it_has_seen():
    with served() as (authority, tools, _):
        for _ in range(10):
            authority.submit(int).result(10)
        first = Stream(tools)
        for _ in range(7):
            _, ident, _ = first.next()
        first.close()
        again = Stream(tools, last_id=ident)
        assert again.next()[2]["seq"] == int(ident) + 1
        again.close()
        page = get(tools, f"/api/events?since={ident}&limit=3")
        assert [event["seq"] for event in page["events"]] == [8, 9, 10]
        assert (page["next"], page["skipped"]) == (10, 0)
        assert ask(tools, "/api/events", token=tools.token, Accept="text/event-stream", Last_Event_ID="x").status == 400


def test_what_viewers_are_sent_is_made_once_for_all_of_them():
    with served() as (authority, tools, _):
        authority.submit(int).result(10)
        until(lambda: get(tools, "/api/info")["seq"] == authority._core.last_seq)
        feed = tools._feed
        assert feed.piece_after(0) is feed.piece_after(0)
        assert feed.piece_after(0).seq == authority._core.last_seq


def test_a_stream_tells_the_snapshot_too_if_that_is_asked_for():
    with served(slots=1) as (authority, tools, gate):
        authority.submit(gate, id="first")
        gate.running.wait(10)
        stream = Stream(tools, query="snapshots=yes")
        kinds = [
            stream.next() for _ in range(authority._core.last_seq + 2)
        ]  # the second one comes though nothing happens
        stream.close()
        pictures = [data for kind, _, data in kinds if kind == "snapshot"]
        assert [kind for kind, _, _ in kinds].count("message") == authority._core.last_seq
        assert [[task["id"] for task in picture["running"]] for picture in pictures] == [["first"], ["first"]]
        assert {ident for kind, ident, _ in kinds if kind == "snapshot"} == {None}, "it is no event to resume after"


def test_the_head_of_a_stream_ends():
    """V3: HEAD has no body, so the next request on the same connection is answered."""
    with Authority(slots=1) as authority:
        tools = authority.devtools(announce=False)
        connection = http.client.HTTPConnection("127.0.0.1", tools.port, timeout=5)
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {tools.token}"}
        connection.request("HEAD", "/api/events", headers=headers)
        first = connection.getresponse()
        assert (first.status, first.read()) == (200, b"")
        assert first.getheader("content-type").startswith("text/event-stream")
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def test_a_stream_lasts_as_long_as_it_was_asked_for():
    with served() as (authority, tools, _):
        authority.submit(int).result(10)
        stream = Stream(tools, query="seconds=1")
        kinds = [kind for kind, _, _ in iter(stream.next, None)]
        stream.close()
        assert set(kinds[:-1]) == {"message"}
        assert kinds[-1] == "again"
        assert ask(tools, "/api/events?seconds=0", token=tools.token).status == 400


def test_a_viewer_that_fell_behind_is_told_how_many_it_missed():
    with served() as (authority, tools, _):
        feed = tools._feed
        feed._kept = 50
        for _ in range(100):
            authority.submit(int).result(10)
        until(lambda: get(tools, "/api/info")["seq"] == authority._core.last_seq and feed.first > 1)
        stream = Stream(tools, since=0)
        kind, ident, data = stream.next()
        assert (kind, data["from"], data["to"], data["skipped"]) == ("skipped", 1, feed.first - 1, feed.first - 1)
        assert int(ident) == data["to"]
        assert stream.next()[2]["seq"] == data["to"] + 1
        stream.close()
        assert get(tools, "/api/events?since=0&limit=1")["skipped"] == data["skipped"]


def test_events_that_fell_out_of_the_authoritys_ring_are_counted_and_made_good():
    authority = Authority(slots=1, events=20)
    gate = Gate()
    feed = Feed(authority._core, 1000)
    try:
        authority.submit(gate, id="holder")
        gate.running.wait(10)
        for index in range(100):
            authority.submit(int, id=f"w{index}")
        authority.get("w7").cancel()
        feed.catch_up()
        assert feed.skipped > 0
        living = {row.number: row.state for row in feed.table.living()}
        snapshot = authority.snapshot()
        assert living == {view.number: view.state for view in (*snapshot.running, *snapshot.pending)}
        assert feed.table.find("w50")[0].state == "READY"
    finally:
        gate.open()
        authority.dispose()


def test_a_task_whose_end_was_missed_is_not_shown_as_alive():
    authority = Authority(slots=1, events=5)
    feed = Feed(authority._core, 1000)
    gate = Gate()
    authority.submit(gate, id="early")
    gate.running.wait(10)
    feed.catch_up()
    gate.open()
    for _ in range(30):
        authority.submit(int).result(10)
    feed.catch_up()
    assert feed.table.find("early")[0].outcome == "unseen"
    authority.dispose()


def test_a_flood_of_events_makes_the_feed_rest():
    authority = Authority(slots=1, events=100_000)
    feed = Feed(authority._core, 1000)
    gate = Gate()
    authority.submit(gate)
    for _ in range(3000):
        authority.submit(int)
    feed.catch_up()
    seq = feed.seq
    authority.submit(int)
    feed.catch_up()
    assert feed.seq == seq, "it rests after so much"
    feed.finish()
    assert feed.seq == authority._core.last_seq
    gate.open()
    authority.dispose()


def test_the_table_agrees_with_the_kernel_at_every_step():
    """The rows made of events alone equal what the kernel says of its living tasks."""
    with Authority(slots=2, vram="4GB") as authority:
        table = TaskTable()
        agreed = []
        lock = threading.Lock()

        def compare(event):
            with lock:
                table.apply(event.to_raw())

        stop = authority.subscribe(compare)
        gate, other = Gate(), Gate()
        first = authority.submit(gate, id="first", vram="3GB")
        authority.submit(other, id="second")
        gate.running.wait(10)
        third = authority.submit(int, id="third", vram="2GB", priority="high")
        authority.submit(int, third, id="fourth")
        authority.submit(int, id="fifth", after_ended=[third]).pause()
        authority.submit(int, id="sixth").cancel()
        authority.get("fifth").resume()
        with authority._core.lock:
            tasks = [task for scope in authority._core.kernel.scopes.values() for task in scope.tasks.values()]
            for task in tasks:
                row, known = table.attempts[task.number], picture(task, 0)
                for name in set(ROW) - {"waits_for", "seq", "submitted_ns", "ready_ns", "waits", "starved_ns"}:
                    assert getattr(row, name) == getattr(known, name), (task.id, name)
                agreed.append(task.id)
        assert agreed == ["first", "second", "third", "fourth", "fifth"]
        assert table.find("sixth")[0].cause == "cancelled"
        gate.open()
        other.open()
        first.result(10)
        stop()


def test_old_finished_tasks_are_forgotten_and_living_ones_never():
    table = TaskTable(kept_finished=3)
    for number in range(1, 11):
        table.apply((number, number, "TASK_SUBMITTED", "s", number, f"t{number}", None, (("state", "READY"),)))
    for number in range(1, 9):
        table.apply((10 + number, 99, "TASK_FINISHED", "s", number, f"t{number}", None, (("outcome", "success"),)))
    assert list(table.attempts) == [6, 7, 8, 9, 10]
    assert table.find("s/t1") == []
    assert [row.number for row in table.find("t10")] == [10]


def test_retries_follow_each_other():
    with served() as (authority, tools, _):
        calls, known = [], Gate()

        def flaky():
            known()
            calls.append(1)
            if len(calls) < 3:
                raise OSError

        handle = authority.submit(flaky, id="flaky", retry=Retry(5))
        last = authority.submit(int, id="after", after=[handle])
        known.open()
        last.result(10)
        answer = until(lambda: (a := get(tools, "/api/tasks/after"))["task"]["outcome"] and a)
        assert [(row["id"], row["attempt"]) for row in answer["awaits"]] == [("flaky", 3)]
        attempts = get(tools, "/api/tasks/flaky")["attempts"]
        assert [(row["attempt"], row["outcome"]) for row in attempts] == [(1, "error"), (2, "error"), (3, "success")]
