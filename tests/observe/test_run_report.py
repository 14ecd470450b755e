"""The run as a whole: totals from the kernel's accounts, holders and the longest chain from the events."""

import json
import threading
import time

import pytest

from commands import drive
from kernel_driver import MS, Driver, kernel, policy
from strategies import Seeded
from whywait import Authority, QueueFull
from whywait.kernel.events import Event
from whywait.kernel.order import Strict
from whywait.observe.report import kernel_account, make_report
from whywait.observe.report_text import WIDTH
from whywait.observe.story import Story


def report_of(driver: Driver, skipped: int = 0):
    totals = kernel_account(driver.kernel, driver.now_ns, 0)
    return make_report(totals, driver.events[skipped:], skipped)


def farm() -> Driver:
    """Two slots, 6 of vram: train holds most of it, three others come and one is dropped."""
    driver = Driver(kernel(2, Strict(), vram=6, queue_limit=6))
    driver.submit("train", 80, vram=5, lasts=40)
    driver.dispatch()
    driver.submit("upscale", vram=4, lasts=10)
    driver.submit("pack", after=["upscale"], lasts=10)
    driver.submit("small", 20, lasts=20)
    driver.submit("late", 0, lasts=5, policy=policy(max_wait=15))
    driver.until(100)
    return driver


def test_where_the_waiting_went_in_total():
    """V1, V4, V7: by cause, of those who started and of those who did not."""
    report = report_of(farm())
    assert report["waited_for_ms"] == {"vram": 40, "slot_higher": 15, "dependency": 50}
    assert report["tasks"] == 5
    assert report["makespan_ms"] == 100
    assert {name: count for name, count in report["outcomes"].items() if count} == {"success": 4, "rejected": 1}
    assert (report["drops"], report["rejects"]) == ({"max_wait": 1}, {})


def test_who_made_others_wait():
    """V1: vram held by train cost upscale 40 ms; the slots of train and small cost late 15 ms."""
    rows = {(row["held"], row["id"]): row["cost_ms"] for row in report_of(farm())["by_holder"]}
    assert rows == {
        ("dependency", "upscale"): 50,
        ("vram", "train"): 40,
        ("slot", "train"): 7.5,
        ("slot", "small"): 7.5,
    }


def test_the_longest_chain():
    """V1: from the first wait to the last end."""
    path = report_of(farm())["critical_path"]
    assert [(step["id"], step["waited_ms"], step["ran_ms"]) for step in path["steps"]] == [
        ("upscale", 40, 10),
        ("pack", 0, 10),
    ]
    assert path["ms"] == 60


def test_how_full_slots_and_budget_were():
    """V1: 40 + 20 + 10 + 10 of 2 x 100 slot ms, 5 x 40 + 4 x 10 of 6 x 100 of vram."""
    use = report_of(farm())["utilisation"]
    assert use["slots"] == {"mean": 0.8, "peak": 2, "limit": 2, "share": 0.4, "now": 0}
    assert use["vram"] == {"mean": 2.4, "peak": 5, "limit": 6, "share": 0.4, "now": 0}


def test_who_starved():
    """V2: READY while a higher priority held a slot, the worst first."""
    starved = report_of(farm())["starved"]
    assert [(row["id"], row["ms"]) for row in starved["worst"]] == [("upscale", 40), ("late", 15)]
    assert starved["tasks"] == 2
    assert starved["past_timeout"] == 0


def test_a_run_that_goes_on():
    """V1: what runs counts up to now; what waits is counted."""
    driver = Driver(kernel(1, cpu=4))
    driver.submit("runs", cpu=2, lasts=None)
    driver.submit("waits")
    driver.until(50)
    report = report_of(driver)
    assert report["utilisation"]["cpu"] == {"mean": 2.0, "peak": 2, "limit": 4, "share": 0.5, "now": 2}
    assert (report["running"], report["outcomes"]["pending"]) == (1, 2)
    assert str(report).startswith("2 tasks in 50 ms\n  1 running, 1 waiting\n")


def test_a_report_says_what_it_has_not_seen():
    """V3: totals stay exact, the rest is of the remembered events."""
    driver = farm()
    report = report_of(driver, skipped=10)
    assert report["waited_for_ms"] == report_of(driver)["waited_for_ms"]
    assert report["events"] == {"seen": len(driver.events) - 10, "skipped": 10}
    assert "10 before them\nwere forgotten" in str(report)


def test_the_page():
    """V1: short lines, bars, names; JSON-ready besides."""
    report = report_of(farm())
    assert str(report).splitlines() == [
        "5 tasks in 100 ms",
        "  4 success, 1 rejected",
        "",
        "Utilisation                                  mean  peak  limit",
        "  slots      █████████▋··············  40%    0.8     2      2",
        "  vram       █████████▋··············  40%  2.4 B   5 B    6 B",
        "",
        "Where the waiting went                                 105 ms",
        "  dependencies          ███████████▍············  48%   50 ms",
        "  vram                  █████████▏··············  38%   40 ms",
        "  slot, behind higher   ███▍····················  14%   15 ms",
        "",
        "Who made others wait",
        "  the end of upscale was awaited  ████████████ 50 ms",
        "  vram held by train              █████████▋·· 40 ms",
        "  a slot held by small            █▊·········· 7.5 ms",
        "  a slot held by train            █▊·········· 7.5 ms",
        "",
        "The longest chain: 2 steps, 60 ms",
        "  upscale  ran 10 ms  after waiting 40 ms",
        "  pack     ran 10 ms   after waiting 0 ms",
        "",
        "Starved: 2 tasks were ready while a higher priority held a slot",
        "  upscale  50 normal     40 ms",
        "  late     0 background  15 ms",
        "",
        "Dropped for max_wait: 1 task",
    ]
    assert all(len(line) <= WIDTH for line in str(report).splitlines())
    assert json.loads(json.dumps(report.to_dict()))["by_holder"]


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_totals_and_events_agree_in_random_runs(first):
    """V1, V4, V7: the kernel's totals are the sum of what the events tell; a report can always be made and told."""
    for seed in range(first, first + 20):
        pair = drive(Seeded(seed), 80)
        totals = kernel_account(pair.kernel, pair.now, 0)
        told: dict[str, int] = {}
        for raw in pair.raw_events:
            for cause, ns in dict(Event.of(raw).details or ()).get("waits", {}).items():
                told[cause] = told.get(cause, 0) + ns
        assert totals["waited_for_ms"] == pytest.approx({cause: ns / MS for cause, ns in told.items()})
        if not any(task.state == "READY" for task in pair.model.tasks):
            worst = sorted((task.starved_ns for task in pair.model.tasks), reverse=True)[:10]
            assert [row["ms"] for row in totals["starved"]["worst"]] == [ns / MS for ns in worst if ns]
            assert totals["starved"]["tasks"] == sum(task.starved_ns > 0 for task in pair.model.tasks)
        used = sum(task.ended_ns - task.started_ns for task in finished(pair) if task.slot)
        used += sum(pair.now - task.since for task in pair.kernel.running.values() if task.takes_slot)
        assert pair.kernel.used_ns(pair.now, pair.kernel.slots) == used
        report = make_report(totals, [Event.of(raw) for raw in pair.raw_events], 0)
        assert str(report)
        json.dumps(report.to_dict())


def finished(pair):
    class Kept(Story):
        def __init__(self, events):
            self.ended = []
            super().__init__(events)

        def task_ended(self, task):
            if task.started_ns is not None:
                self.ended.append(task)

    return Kept([Event.of(raw) for raw in pair.raw_events]).ended


def test_an_authority_reports_at_any_time():
    """V1: while it runs, and after its end, when time stands still for it."""
    gate = threading.Event()
    with Authority(slots=1, vram="6GB", queue_limit=2) as authority:
        held = authority.submit(gate.wait, id="train", vram="5GB")
        waiting = authority.submit(int, id="upscale", vram="4GB")
        last = authority.submit(int, waiting, id="pack")
        with pytest.raises(QueueFull):
            authority.submit(int, id="too many")
        before = authority.report()
        assert (before["running"], before["drops"]) == (1, {"queue_full": 1})
        gate.set()
        held.result(30)
    after = authority.report()
    assert after["outcomes"]["success"] == 3
    assert [step["id"] for step in after["critical_path"]["steps"]] == ["upscale", "pack"]
    assert ("slot", "train") in {(row["held"], row["id"]) for row in after["by_holder"]}
    assert after.to_dict() == authority.report().to_dict()
    waited = sum(handle.why().waited for handle in (held, waiting, last))
    assert sum(after["waited_for_ms"].values()) == pytest.approx(waited * 1000)


def test_a_run_ends_with_its_last_task():
    """V4: what comes after it, leaving and disposing, is no part of the makespan or of the use of the slots."""
    with Authority(slots=1) as authority:
        authority.submit(time.sleep, 0.01).result(30)
        ended = authority.report()["makespan_ms"]
        time.sleep(0.05)
    assert authority.report()["makespan_ms"] == ended


def test_a_report_while_the_run_goes_on_tells_of_those_who_starve_now():
    """V2: as stats() and why() do; and nobody is said not to have waited while somebody does."""
    driver = Driver(kernel(1, Strict()))
    driver.submit("urgent", 80, lasts=40)
    driver.dispatch()
    driver.submit("small", 20, lasts=5)
    driver.until(30)
    report = report_of(driver)
    signals = driver.kernel.starvation.signals(driver.now_ns, driver.kernel.lanes_in_use())
    assert (
        (report["starved"]["now"], report["starved"]["longest_ms"]) == (1, 30) == (signals.now, signals.longest_ns / MS)
    )
    assert (
        "Starved: 1 task is ready while a higher priority holds a slot\n  1 starved now; the longest so far for 30 ms"
        in str(report)
    )
    assert "No task waited" not in str(report)
    driver.until(60)
    assert "Starved: 1 task was ready while a higher priority held a slot\n  small  20 low  40 ms\n" in str(
        report_of(driver)
    )
