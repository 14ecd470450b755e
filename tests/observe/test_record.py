"""Recording and replaying: a real threaded run, fed to the kernel again, gives the same events to the byte."""

import inspect
import json
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from program import whywait
from whywait import Aging, Authority, Call, ConfigError, Infeasible, Retry, Simulation, Strict, WhywaitError
from whywait.kernel.events import Event
from whywait.kernel.kernel import COMMANDS, Kernel
from whywait.kernel.limits import Budget, Limits, Policy
from whywait.kernel.model import Submission
from whywait.observe.record import Record, RecordingKernel, is_record
from whywait.simulation.whatif import workload_of


def body(signal: threading.Event, fails: bool) -> None:
    signal.wait(0.0005)
    if fails:
        raise ValueError("as told")


def feed(authority: Authority, seed: int) -> None:
    """One of several threads that submit, pause, cancel and suspend as they please."""
    choose, never = random.Random(seed), threading.Event()
    with authority.scope(f"s{seed}", slots=choose.choice([1, 2, None])) as scope:
        handles = []
        for number in range(40):
            with suppress(WhywaitError):
                handle = scope.submit(
                    body,
                    never,
                    choose.random() < 0.2,
                    id=f"t{number}",
                    priority=choose.choice([0, 20, 50, 80]),
                    cpu=choose.randrange(3),
                    vram=choose.choice([0, "2GB", "7GB"]),
                    after=choose.sample(handles, min(len(handles), choose.randrange(2))),
                    after_ended=choose.sample(handles, min(len(handles), choose.randrange(2))),
                    max_wait=choose.choice([None, None, 0.01]),
                    timeout=choose.choice([None, 10]),
                    slot=choose.random() < 0.8,
                )
                handles.append(handle)
                if choose.random() < 0.1:
                    handle.cancel()
                elif choose.random() < 0.1 and handle.state in {"QUEUED", "READY"}:
                    handle.pause()
        with suppress(WhywaitError):
            scope.suspend()
            scope.resume()
        for handle in handles:
            with suppress(WhywaitError):
                handle.resume()


def threaded_run(path: Path, seed: int, **options) -> Authority:
    with Authority(slots=3, cpu=4, vram="6GB", record=path, events=1_000_000, **options) as authority:
        threads = [threading.Thread(target=feed, args=(authority, seed * 10 + number)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    return authority


OPTIONS = (
    {"order": Strict(), "retry": Retry(1)},
    {"order": Aging(0.002, 10), "retry": Retry(2, backoff=0.001, jitter=0.5), "backfill": "none"},
    {"queue_limit": 20, "overflow": "displace", "starvation_timeout": 0.005, "engine": "simple"},
)


@pytest.mark.parametrize("seed", range(len(OPTIONS)))
def test_a_real_threaded_run_replays_to_the_byte(tmp_path, seed):
    """V3: same commands and times in, byte-identical events out."""
    path = tmp_path / "run.rec"
    authority = threaded_run(path, seed, **OPTIONS[seed])
    events = authority.events()
    assert events.skipped == 0
    replayed = Record(path).replay()
    assert repr(replayed) == repr(list(events))
    assert len(replayed) > 50


def test_a_batch_and_a_disposed_scope_replay(tmp_path):
    """D6, O4: also what was refused."""
    from whywait import Call

    path = tmp_path / "run.rec"
    gate = threading.Event()
    with Authority(slots=1, record=path) as authority:
        scope = authority.scope("s")
        scope.submit_many(
            [Call(gate.wait, (), {"id": "a"}), Call(int, (), {"id": "b", "after": ["c"]}), Call(int, (), {"id": "c"})]
        )
        with pytest.raises(WhywaitError):
            scope.submit(int, id="a")
        gate.set()
        authority.submit(int, after=["s/c"]).result(30)
        scope.dispose()
        with pytest.raises(WhywaitError):
            authority.scope("default")
    assert Record(path).replay() == authority.events()


def test_kept_tasks_that_do_not_fit_replay(tmp_path):
    """M13: that they were let in is in the record; the replay lets them in, and they wait there too."""
    header = {"limits": Limits(2), "budget": Budget({"cpu": 2}), "order": Strict(), "policy": Policy()}
    waits = {"pause_timeout_ns": 1, "starvation_timeout_ns": 1}
    kernel = RecordingKernel(tmp_path / "run.wwr", **header, backfill="greedy", overdraft="count", **waits)
    raw: list = []
    kernel.emit_to(raw.append)
    wanted = [("wide", (("cpu", 3),)), ("lacks", (("gpu", 1),)), ("fits", (("cpu", 1),))]
    requests = [Submission(kernel.root, name, demand=demand, policy=Policy(max_wait_ns=5)) for name, demand in wanted]
    kernel.submit_many(0, requests, kept=True)
    kernel.dispatch(0)
    kernel.dispatch(100)
    kernel.close()
    events = Record(tmp_path / "run.wwr").replay()
    assert events == [Event.of(each) for each in raw]
    assert [event.name for event in events if event.kind in {"TASK_STARTED", "TASK_DROPPED"}] == ["fits"]


def test_results_that_other_tasks_take_replay(tmp_path):
    """D1: a call that only takes results has ways of its own into the kernel; what did not take it left no line."""
    path = tmp_path / "run.rec"
    with Authority(slots=2, record=path) as authority:
        first = authority.submit(int, 1)
        numbers = [authority.scope("s").submit(int, first)]
        for _ in range(20):
            numbers.append(authority.submit(int, numbers[-1]))
        assert numbers[-1].result(30) == 1
    assert Record(path).replay() == authority.events()


def test_a_run_with_devices_replays(tmp_path):
    """N3, V3: the units of each task are in the events; a card that dies and comes back is a command like others."""
    path = tmp_path / "run.rec"
    gate = threading.Event()
    with Authority(slots=None, gpus=["24GB", "12GB"], devices={"rig": ["a"]}, record=path) as authority:
        handles = [authority.submit(gate.wait, 30, vram="10GB") for _ in range(4)]
        handles.append(authority.submit(int, gpu=2, devices={"rig": 1}))
        authority.resize(gpus={"0": "24GB"})
        with pytest.raises(WhywaitError):
            authority.submit(int, gpu=2)
        gate.set()
        handles[3].result(30)
        authority.resize(gpus={"0": "24GB", "1": "12GB"}, slots=3)
        handles[4].result(30)
    assert [handle.devices for handle in handles] == [
        {"gpu": ["1"]},
        {"gpu": ["0"]},
        {"gpu": ["0"]},
        {"gpu": ["0"]},
        {"gpu": ["0", "1"], "rig": ["a"]},
    ]
    assert repr(Record(path).replay()) == repr(list(authority.events()))


@pytest.mark.parametrize("overlap", ["skip", "queue", "parallel"])
def test_a_periodic_with_settings_of_its_own_replays(tmp_path, overlap):
    """V3: whatever a periodic was added with; a setting that no periodic can have is named."""
    path = tmp_path / "run.rec"
    settings = {"overlap": overlap, "max_parallel": 2, "jitter": 0.1, "disable_after": 2, "immediately": True}
    with Authority(slots=2, record=path) as authority:
        scope = authority.get_scope("default")
        scope.periodic(int, every=0.002, id="tick", priority="low", **settings)
        authority.submit(threading.Event().wait, 0.02).result(30)
    assert repr(Record(path).replay()) == repr(list(authority.events()))
    wrong = tmp_path / "wrong.rec"
    wrong.write_text(path.read_text().replace(f'"overlap":"{overlap}"', '"overlap":"never"'))
    with pytest.raises(ConfigError, match='overlap is "never": expected one of skip, queue, parallel'):
        Record(wrong).replay()


def test_nothing_of_the_users_is_recorded(tmp_path):
    """V3: no function, no argument, no result."""
    path = tmp_path / "run.rec"
    with Authority(slots=1, record=path) as authority:
        authority.submit("{} {x}".format, "secret", kwargs={"x": "password"}, id="job").result(30)
    text = path.read_text()
    assert "job" in text
    assert "secret" not in text
    assert "password" not in text
    assert "format" not in text


def test_an_authority_that_does_not_record_has_the_plain_kernel():
    """C1: the door is swapped, nothing is asked on the way."""
    with Authority(slots=1) as authority:
        assert type(authority._core.kernel) is Kernel


def test_every_command_of_the_kernel_is_recorded():
    """V3: whatever takes the time but for questions."""
    public = {name for name in vars(Kernel) if not name.startswith("_")}
    timed = {name for name in public if {"now", "_now"} & inspect.signature(getattr(Kernel, name)).parameters.keys()}
    assert timed - {"why", "snapshot"} == set(COMMANDS)


def test_a_record_cut_short_is_read_up_to_there(tmp_path):
    path = tmp_path / "run.rec"
    with Authority(slots=1, record=path) as authority:
        for _ in range(5):
            authority.submit(int).result(30)
    events = authority.events()
    path.write_text(path.read_text()[:-40])
    record = Record(path)
    assert not record.complete
    replayed = record.replay()
    assert replayed == events[: len(replayed)]
    assert 0 < len(replayed) < len(events)


@pytest.mark.parametrize("text", ["", "[]", '{"tasks": []}', '{"whywait record": 99}', "\x00"])
def test_what_is_no_record_is_refused(tmp_path, text):
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(ConfigError, match="record"):
        Record(path)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Record(tmp_path / "nowhere")
    assert not is_record(tmp_path / "nowhere")


def test_an_unknown_command_and_a_broken_line_are_named(tmp_path):
    path = tmp_path / "x"
    header = {"limits": Limits(), "budget": Budget(), "order": Strict(), "policy": Policy()}
    kernel = RecordingKernel(
        path, **header, backfill="greedy", overdraft="count", pause_timeout_ns=1, starvation_timeout_ns=1
    )
    kernel.close()
    good = path.read_text()
    path.write_text(good + '["fly", 1, []]\n')
    with pytest.raises(ConfigError, match='"fly" is not a command'):
        Record(path).replay()
    path.write_text(good + "{oops\n")
    with pytest.raises(ConfigError, match=r"x:2: .* is not a line of a record"):
        Record(path)


# What if


def two_that_share_vram(path: Path) -> None:
    """Two tasks of 20 ms that do not fit at once, and one that waits for both."""
    never = threading.Event()
    with Authority(slots=4, vram="6GB", record=path) as authority:
        authority.submit_many(
            [
                Call(never.wait, (0.02,), {"id": "first", "vram": "4GB"}),
                Call(never.wait, (0.02,), {"id": "second", "vram": "4GB"}),
                Call(int, (), {"id": "last", "after": ["first", "second"]}),
            ]
        )


def test_what_if_there_had_been_more_vram(tmp_path):
    """B2: both run at once, with the durations as recorded; as it was, they run one after the other."""
    path = tmp_path / "run.rec"
    two_that_share_vram(path)
    workload = workload_of(path)
    assert workload.ids == ("first", "second", "last")
    lasted = dict(zip(workload.ids, workload.duration_ms, strict=True))
    as_it_was, wider = Simulation(workload).run(), Simulation(workload, vram="12GB").run()
    starts = {
        result: {name: ms for ms, word, name in result.events if word == "start"} for result in (as_it_was, wider)
    }
    assert starts[as_it_was]["second"] == pytest.approx(lasted["first"] / 1e6)
    assert starts[wider]["second"] < 20
    for result in (as_it_was, wider):
        assert set(result.final.values()) == {"success"}
        begins = starts[result]
        ends = {name: ms for ms, word, name in result.events if word == "finish"}
        assert {name: round((ends[name] - begins[name]) * 1e6) for name in ends} == pytest.approx(lasted, abs=2)
    assert wider.summary["makespan_ms"] < as_it_was.summary["makespan_ms"]


def test_memory_that_was_hard_is_hard_in_the_what_if(tmp_path):
    """M10, B1: a task that asks for more than another budget has is refused, and does not run alone."""
    with Authority(slots=2, ram=100, hard_ram=True, record=tmp_path / "run.rec") as authority:
        with pytest.raises(Infeasible, match="demands 101 ram and the limit is 100"):
            authority.submit(int, ram=101)
        assert authority.submit(int, id="large", ram=80).result(30) == 0
    workload = workload_of(tmp_path / "run.rec")
    assert Simulation(workload).run().final == {"large": "success"}
    assert Simulation(workload, ram=50).run().final == {"large": "rejected"}
    assert Simulation(workload, ram=50, hard_ram=False).run().final == {"large": "success"}


def test_retries_failures_and_cancellations_come_out_the_same(tmp_path):
    """T7, X3: each attempt lasts as it did; who was cancelled is cancelled at that time."""
    path = tmp_path / "run.rec"
    tries = []

    def flaky(wait):
        tries.append(wait)
        if len(tries) < 3:
            raise ValueError("not yet")

    gate = threading.Event()
    with Authority(slots=1, record=path) as authority:
        authority.submit(flaky, gate.wait, id="flaky", retry=Retry(2, backoff=0.001)).result(30)
        authority.submit(int, "x", id="fails", retry=1).exception(30)
        authority.submit(gate.wait, id="held")
        gone = authority.submit(int, id="gone")
        gone.cancel()
        after = authority.submit(int, id="after", after_ended=[gone])
        gate.set()
        after.result(30)
    result = Simulation(workload_of(path)).run()
    assert result.final == {
        "flaky": "success", "fails": "error", "held": "success", "gone": "aborted", "after": "success",
    }  # fmt: skip
    starts = [name for _, word, name in result.events if word == "start"]
    assert (starts.count("flaky"), starts.count("fails")) == (3, 2)


def test_a_suspension_comes_at_its_time(tmp_path):
    """O2: what was submitted before it starts after it."""
    path = tmp_path / "run.rec"
    gate, never = threading.Event(), threading.Event()
    with Authority(slots=1, record=path) as authority, authority.scope("s") as scope:
        first = scope.submit(gate.wait, id="first")
        second = scope.submit(int, id="second")
        scope.suspend()
        gate.set()
        first.result(30)
        never.wait(0.005)
        scope.resume()
        second.result(30)
    waited = Simulation(workload_of(path)).run().summary["waited_for_ms"]
    assert waited["scope_state"] >= 5


def test_equal_names_in_other_scopes_and_no_names_at_all(tmp_path):
    """T9: ids of a workload are global."""
    path = tmp_path / "run.rec"
    with Authority(slots=2, record=path) as authority:
        for key in ("a", "b"):
            with authority.scope(key) as scope:
                scope.submit(int, id="same", after=[scope.submit(int)])
    workload = workload_of(path)
    assert len(set(workload.ids)) == 4
    assert set(Simulation(workload, slots=1).run().final.values()) == {"success"}


def test_the_command_line_takes_a_record(tmp_path):
    """V1: other slots and another budget, side by side or alone."""
    path = tmp_path / "run.rec"
    two_that_share_vram(path)
    as_it_was, wider = (
        json.loads(whywait("simulate", path, "--json", *options).out) for options in ((), ("--vram", "12GB"))
    )
    assert as_it_was["final"] == wider["final"] == {"first": "success", "second": "success", "last": "success"}
    assert wider["summary"]["makespan_ms"] < as_it_was["summary"]["makespan_ms"]
    assert wider["summary"]["utilisation"]["vram"]["limit"] == 12_000_000_000
    done = whywait("simulate", path, "--json", "--vram", "12G")
    assert (done.code, "two sizes" in done.err) == (2, True)
