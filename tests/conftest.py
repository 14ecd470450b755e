"""Shared by all tests: helper modules show what differs when one of their assertions fails."""

import os

import pytest

pytest.register_assert_rewrite("pair", "invariants", "explained", "kernel_driver")


@pytest.fixture(scope="session")
def ray_session():
    """A small Ray cluster on this machine, and a switchboard, that all tests of a session share."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    from whywait.authority import Authority

    ray.init(
        num_cpus=6,
        object_store_memory=200 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    with Authority(engine="ray") as keeper:
        yield keeper
    ray.shutdown()
