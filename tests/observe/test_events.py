"""The event stream as programs use it: since where, what was skipped, and what slow readers miss."""

import json
import threading

from patience import until
from whywait import Authority
from whywait.kernel.events import Event, Kind


def run(authority, count):
    for number in range(count):
        authority.submit(int, id=f"t{number}").result(30)


def test_events_since_a_seq_follow_without_a_gap():
    """V3: nothing twice, nothing missing, nothing skipped."""
    with Authority(slots=1) as authority:
        run(authority, 3)
        first = authority.events()
        run_more = [authority.submit(int).result(30) for _ in range(3)]
        later = authority.events(since=first[-1].seq)
        assert len(run_more) == 3
        assert (first.skipped, later.skipped) == (0, 0)
        assert [event.seq for event in (*first, *later)] == list(range(1, later[-1].seq + 1))
        assert authority.events(since=later[-1].seq) == []
        assert authority.events(since=10**9) == []


def test_a_subscriber_hears_of_a_task_that_has_to_wait():
    """V3: at once, though nothing starts and nothing ends."""
    gate, heard = threading.Event(), []
    with Authority(slots=1) as authority:
        authority.submit(gate.wait)
        authority.subscribe(heard.append)
        authority.submit(int, id="waits")
        assert [(event.kind, event.name) for event in heard] == [(Kind.TASK_SUBMITTED, "waits")]
        gate.set()


def test_what_was_forgotten_is_counted():
    """V3: a ring of 10 says how many are lost between what the reader knows and the first it gets."""
    with Authority(slots=1, events=10) as authority:
        run(authority, 20)
        events = authority.events()
        assert len(events) == 10
        assert events.skipped == events[0].seq - 1
        assert authority.events(since=events[0].seq - 4).skipped == 3
        assert authority.events(since=events[3].seq).skipped == 0


def test_an_event_survives_json():
    """V3: demand, waits and dependencies included."""
    with Authority(slots=1, vram="6GB") as authority:
        gate = threading.Event()
        authority.submit(gate.wait, id="holder")
        waiting = authority.submit(int, id="waiting", vram="1GB")
        authority.submit(str, waiting, id="after")
        gate.set()
        waiting.result(30)
    events = authority.events()
    assert [Event.from_dict(json.loads(json.dumps(event.to_dict()))) for event in events] == events
    started = {event.name: dict(event.details or ()) for event in events if event.kind == Kind.TASK_STARTED}
    assert started["waiting"]["waits"].keys() == {"slot"}


def test_a_start_tells_the_same_wait_as_why():
    """V1, V3: the event carries the account itself."""
    with Authority(slots=1) as authority:
        gate = threading.Event()
        authority.submit(gate.wait)
        waiting = authority.submit(int, id="waiting")
        gate.set()
        waiting.result(30)
        (event,) = [each for each in authority.events() if each.kind == Kind.TASK_STARTED and each.name == "waiting"]
        assert dict(event.details)["waits"] == waiting.why().breakdown


def test_a_subscriber_that_is_too_slow_misses_events_and_everybody_learns_it(monkeypatch, caplog):
    """V3: memory stays bounded; the log says how many were not delivered."""
    monkeypatch.setattr("whywait.runtime.journal._WAITING", 20)
    entered, go = threading.Event(), threading.Event()
    seen = []

    def slow(event):
        seen.append(event.seq)
        if len(seen) == 1:
            entered.set()
            go.wait(30)

    with Authority(slots=4, events=5) as authority:
        authority.subscribe(slow)
        blocked = authority.submit(int)  # some worker delivers, and is held up by the subscriber
        blocked.result(30)
        assert entered.wait(30)
        done = [authority.submit(int) for _ in range(50)]
        for handle in done:
            handle.result(30)
        go.set()
    assert len(seen) < authority.events()[-1].seq
    until(lambda: "were not delivered" in caplog.text)  # the thread that was held up says so as it goes on
