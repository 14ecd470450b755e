"""The Ray engine at an unlucky moment: what Ray must not be asked to cancel, and Ray that goes away."""

import threading
from types import SimpleNamespace

import pytest

from whywait.engines.ray import cluster as ray_cluster
from whywait.engines.ray.cluster import Cluster
from whywait.engines.ray.engine import RayEngine
from whywait.engines.ray.ray_task import RayTask


def test_what_was_just_sent_is_not_withdrawn_from_ray_at_once(monkeypatch):
    """X4: Ray may be about to begin it, or to be through; it would take the whole process down."""
    for need in ("require_ray", "require_cloudpickle"):  # the engine is told what its cluster would say
        monkeypatch.setattr(f"whywait.engines.ray.engine.{need}", lambda: None)
    engine = RayEngine()
    delays, cancelled = [], []
    engine.runtime = SimpleNamespace(call_later=lambda delay_s, _: delays.append(delay_s))
    monkeypatch.setattr(RayTask, "cancel", lambda _: cancelled.append(True))
    task = RayTask(SimpleNamespace(number=1), None, 1)
    engine._tasks = {1: task}
    engine._withdraw(task)
    assert (len(delays), cancelled) == (1, [])
    task.sent_s -= 10
    engine._withdraw(task)
    assert (len(delays), cancelled) == (1, [True])


def shutting_down(*_):
    """Do what Ray does to a thread that waits for it while it shuts down."""
    raise SystemExit(0)


@pytest.mark.parametrize("waits", [Cluster._take, Cluster._follow])
def test_threads_that_wait_for_ray_end_quietly_when_it_shuts_down(monkeypatch, waits):
    """O5: the program ends Ray, or the last authority does; no error comes of it, and Ray is asked nothing more."""
    asked = []
    stub = SimpleNamespace(is_initialized=lambda: True, get=shutting_down, nodes=shutting_down)
    monkeypatch.setattr(ray_cluster, "ray", stub)
    monkeypatch.setattr(ray_cluster, "FOLLOW_S", 0.0)
    cluster = Cluster.__new__(Cluster)
    cluster._is_closed = threading.Event()
    cluster.board = SimpleNamespace(take=SimpleNamespace(remote=lambda: asked.append("take")))
    monkeypatch.setattr(Cluster, "_open_board", lambda _: asked.append("another board"))
    waits(cluster)
    assert "another board" not in asked
