"""Dependencies: who wakes whom and who takes whom down, computed by hand in virtual time."""

from __future__ import annotations

import re

import pytest

from kernel_driver import Driver, kernel, policy
from whywait.errors import ConfigError, UnknownDependency


def test_a_dependency_must_exist():
    """G1: the error gives the name, and the nearest one that exists."""
    driver = Driver(kernel(1))
    driver.submit("decode")
    with driver.refuses(UnknownDependency, "task 'b' waits for 'decoed', which does not exist; did you mean 'decode'?"):
        driver.submit("b", after=["decoed"])
    with driver.refuses(UnknownDependency, "the task waits for 'xyz', which does not exist$"):
        driver.submit(None, after_ended=["xyz"])


def test_a_dependency_is_found_in_its_own_scope_or_by_scope_and_name():
    """G1: a bare name is the scope's own; another scope's is written scope/name."""
    driver = Driver(kernel(1))
    one, two = driver.scope("one"), driver.scope("two")
    driver.submit("x", scope=one)
    with driver.refuses(UnknownDependency, "task 'y' waits for 'x', which does not exist"):
        driver.submit("y", scope=two, after=["x"])
    with driver.refuses(UnknownDependency, "task 'y' waits for 'three/x', which does not exist"):
        driver.submit("y", scope=two, after=["three/x"])
    driver.submit("y", scope=two, after=["one/x"])
    driver.until(10)
    assert driver.starts == [(0, "x"), (10, "y")]


@pytest.mark.parametrize("by", ["name", "task"])
@pytest.mark.parametrize("how", ["success", "error", "cancelled"])
def test_a_dependency_that_has_ended_is_met_or_ends_the_newcomer_at_once(by, how):
    """G1, G3, G6: success meets `after`, any end meets `after_ended`; the root cause is named, also further on."""
    driver = Driver(kernel(1))
    ended = driver.submit("ended", outcome="error" if how == "error" else "success")
    if how == "cancelled":
        driver.cancel(ended)
    driver.until(10)
    other = "ended" if by == "name" else ended
    assert driver.submit("after its end", after_ended=[other]).state == "READY"
    task = driver.submit("task", after=[other, other])
    if how == "success":
        assert task.state == "READY"
        return
    assert (task.state, task.outcome, task.cause, task.root) == ("DISPOSED", "aborted", "dependency", "ended")
    assert driver.story()[-2:] == ["10 submitted task QUEUED", "10 cancelled task dependency ended"]
    assert driver.settled[-1] is task
    assert driver.submit("behind", after=[task]).root == "ended"


def test_the_last_dependency_makes_a_task_ready():
    """G2: a diamond; the bottom waits for both sides."""
    driver = Driver(kernel(None))
    driver.submit("top", lasts=5)
    driver.submit("left", lasts=10, after=["top"])
    driver.submit("right", lasts=20, after=["top"])
    driver.submit("bottom", after=["left", "right"])
    driver.until(100)
    assert driver.starts == [(0, "top"), (5, "left"), (5, "right"), (25, "bottom")]
    assert driver.story("ready") == ["5 ready left", "5 ready right", "25 ready bottom"]


WAYS = {
    "failure": ({"lasts": 10, "outcome": "error"}, None),
    "failure after retries": ({"lasts": 5, "outcome": "error", "policy": policy(retry=1)}, None),
    "abort": ({"lasts": 50}, "cancel"),
    "timeout": ({"lasts": 50, "policy": policy(timeout=10)}, None),
    "drop": ({"policy": policy(max_wait=10)}, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_ends_a_task_badly_ends_all_its_descendants(way):
    """G3: ABORTED/dependency at 10 ms, in submission order, each naming the root cause; the bystander is left alone."""
    how, op = WAYS[way]
    driver = Driver(kernel(1 if way == "drop" else None))
    if way == "drop":
        driver.submit("holds the slot", lasts=100)
        driver.dispatch()
    root = driver.submit("root", **how)
    child = driver.submit("child", 0, after=["root"])
    grandchild = driver.submit("grandchild", 100, after=["child"])
    driver.submit("other")
    both = driver.submit("both", after=["other", "root"])
    bystander = driver.submit("bystander", after=["other"])
    driver.pause(child)
    driver.until(10)
    if op == "cancel":
        driver.cancel(root)
    for task in (child, grandchild, both):
        assert (task.state, task.outcome, task.cause, task.root) == ("DISPOSED", "aborted", "dependency", "root")
    assert [line for line in driver.story("cancelled") if "dependency" in line] == [
        "10 cancelled child dependency root",
        "10 cancelled grandchild dependency root",
        "10 cancelled both dependency root",
    ]
    driver.until(200)
    assert bystander.outcome == "success"
    assert driver.kernel.root.tasks == {}


def test_a_batch_may_name_its_tasks_in_any_order():
    """G5: the first of the list comes last."""
    driver = Driver(kernel(None))
    tasks = driver.submit_many(
        driver.submission("c", after=["b"]), driver.submission("b", after=["a"]), driver.submission("a")
    )
    assert [task.state for task in tasks] == ["QUEUED", "QUEUED", "READY"]
    assert [task.number for task in tasks] == sorted(task.number for task in tasks)
    driver.until(100)
    assert driver.starts == [(0, "a"), (10, "b"), (20, "c")]


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ({"a": ["a"]}, ["a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b"]),
        ({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]}, ["b", "c", "d"]),
    ],
)
@pytest.mark.parametrize("kind", ["after", "after_ended"])
def test_a_cycle_in_a_batch_is_printed(edges, cycle, kind):
    """G5, D6: each arrow points to whom the task before it waits for; nothing of the batch stays."""
    driver = Driver(kernel(1))
    batch = [driver.submission(name, **{kind: names}) for name, names in edges.items()]
    with driver.refuses(ConfigError, "the tasks wait for each other in a cycle: ") as caught:
        driver.submit_many(*batch)
    printed = str(caught.value).partition("cycle: ")[2].split(" -> ")
    turns = [cycle[start:] + cycle[:start] for start in range(len(cycle))]
    assert printed in [[*turn, turn[0]] for turn in turns]


def test_an_unknown_name_in_a_batch_is_refused_with_the_nearest():
    """G5: near ones of the batch itself are known too."""
    driver = Driver(kernel(1))
    batch = [driver.submission("encode"), driver.submission("upload", after=["enocde"])]
    with driver.refuses(UnknownDependency, re.escape("'enocde', which does not exist; did you mean 'encode'?")):
        driver.submit_many(*batch)
    assert driver.story("rejected") == ["0 rejected upload unknown_dependency"]


@pytest.mark.parametrize("outcome", ["success", "error", "timeout", "aborted", "rejected", "dependency"])
def test_after_ended_is_met_by_any_outcome(outcome):
    """G6: the cleanup starts, whatever became of the work."""
    driver = Driver(kernel(1))
    driver.submit("holds", lasts=10, outcome="error" if outcome == "dependency" else "success")
    driver.dispatch()
    rule = policy(timeout=5 if outcome == "timeout" else None, max_wait=5 if outcome == "rejected" else None)
    work = driver.submit(
        "work",
        outcome="error" if outcome == "error" else "success",
        policy=rule,
        after=["holds"] if outcome == "dependency" else [],
    )
    cleanup = driver.submit("cleanup", after_ended=["work"])
    if outcome == "aborted":
        driver.cancel(work)
        assert cleanup.state == "READY"
    driver.until(100)
    assert work.outcome == ("aborted" if outcome == "dependency" else outcome)
    assert cleanup.outcome == "success"


def test_after_ended_waits_for_the_body_to_have_really_ended():
    """G6, X3: the abort is asked for at 5 ms, the body ends at 30 ms; `after` falls at once, `after_ended` waits."""
    driver = Driver(kernel(None))
    work = driver.submit("work", lasts=30, obeys=False)
    driver.submit("cleanup", after_ended=["work"])
    driver.submit("next", after=["work"])
    driver.until(5)
    driver.cancel(work)
    driver.until(100)
    assert driver.story("cancelled") == ["5 cancelled next dependency work", "30 cancelled work cancelled"]
    assert driver.starts == [(0, "work"), (30, "cleanup")]
