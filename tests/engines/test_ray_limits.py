"""V1: what a cluster lacks for a demand, and demands in the words of Ray; no cluster is needed for this."""

import pytest

from whywait.engines.ray import cluster_limits as ray_limits
from whywait.engines.ray.cluster import Node, total
from whywait.engines.ray.cluster_limits import in_rays_words, of_the_cluster, shortages
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, make_demand
from whywait.kernel.reasons import Shortage

NODES = (Node("a", "a", {"cpu": 4, "ram": 8}), Node("b", "b", {"cpu": 2, "gpu": 2}))
HAS = {**total(NODES), "spot": 0}  # a node that had it is gone


@pytest.fixture
def free(monkeypatch):
    """What the two nodes have free."""
    left = [{"cpu": 1, "ram": 8}, {"cpu": 0, "gpu": 2}]
    monkeypatch.setattr(ray_limits, "free_on_nodes", lambda: left)
    return left


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("demand", "missing"),
    [
        ({}, ()),
        ({"cpu": 1, "ram": 8}, ()),
        ({"cpu": 2}, (Shortage("cpu", 2, 4, 1),)),
        ({"gpu": 1}, (Shortage("gpu", 1, 2, 0),)),
        ({"cpu": 9}, (Shortage("cpu", 9, 4, 0),)),
        ({"spot": 1}, (Shortage("spot", 1, 0, 0),)),
        ({"licence": 3}, ()),
        ({"ram": 9}, ()),
    ],
    ids=[
        "one cpu",
        "fits",
        "busy",
        "free, but not on one node",
        "no node",
        "gone",
        "not of the cluster",
        "not asked for",
    ],
)
def test_what_is_missing_is_what_no_node_has_or_the_closest_lacks(demand, missing):
    """V1: not what all nodes have together: a task fits on one node or on none."""
    assert shortages(demand, NODES, HAS) == missing


def test_nothing_is_missing_if_nothing_can_be_learnt(free):
    """V1: it never claims what it does not know."""
    free.clear()
    assert shortages({"cpu": 2}, NODES, HAS) == ()


def test_units_that_the_authority_names_itself_are_none_of_the_clusters_business():
    """N3: a task with cards of the kernel's asks Ray for the rest of its demand."""
    kernel = Kernel(budget=Budget({"cpu": 4}, devices={"gpu": {"0": 8}, "rig": {"a": 0}}))
    demand = make_demand(cpu=1, vram=6, devices={"rig": 1})
    kernel.submit(0, kernel.root, demand=demand)
    (task,) = kernel.dispatch(0).started
    assert of_the_cluster(task) == (("cpu", 1),)


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        ({}, {"num_cpus": 1}),
        ({"cpu": 2, "ram": 8, "gpu": 1}, {"num_cpus": 2, "memory": 8, "num_gpus": 1}),
        ({"ram": 9}, {"num_cpus": 1}),
        ({"spot": 1, "licence": 1}, {"num_cpus": 1, "resources": {"spot": 1}}),
    ],
    ids=["none", "all", "more memory than there is", "what has gone still counts, what is ours alone does not"],
)
def test_a_demand_in_the_words_of_ray(demand, words):
    """B1, B2: placement by the same demand as permission, as far as the cluster knows what it is."""
    assert in_rays_words(demand, HAS) == words
