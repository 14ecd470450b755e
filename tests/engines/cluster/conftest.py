"""A real cluster of several nodes on this machine, for the tests of faults."""

from contextlib import suppress

import pytest


@pytest.fixture(autouse=True)
def marked(request):
    """Everything here needs Ray."""
    assert request.node.get_closest_marker("ray"), "tests of this folder carry the mark `ray`"


@pytest.fixture(scope="session", autouse=True)
def head(watched_kinds):
    """A cluster whose head has two CPUs, with this process as its driver."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": 100 * 2**20,
            "include_dashboard": False,
            "_system_config": {"health_check_period_ms": 500},  # a node that is gone is noticed within some seconds
        },
    )
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


class Nodes:
    """Adds nodes to the cluster and takes them away, the hard way."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._left = []

    def add(self, **options):
        node = self._cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20, **options)
        self._left.append(node)
        return node

    def kill(self, node):
        self._left.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self):
        for node in list(self._left):
            with suppress(Exception):
                self.kill(node)


@pytest.fixture
def nodes(head):
    """More nodes, for one test."""
    made = Nodes(head)
    yield made
    made.close()


@pytest.fixture
def make(head):
    """Make authorities whose tasks run on the cluster."""
    from whywait import Authority

    made = []

    def make_authority(**options):
        authority = Authority(**{"engine": "ray", "grace": 30.0, **options})
        made.append(authority)
        return authority

    yield make_authority
    for authority in made:
        authority.dispose(grace=0.5)
