"""Shared by all tests: whatever a test makes is gone when it ends, and helper modules explain failed assertions."""

import gc
import os
import signal
import tempfile

import pytest

from leaks import Held, left_since, watch_loops

pytest.register_assert_rewrite("pair", "whywait.kernel.invariants", "explained", "kernel_driver", "interleave")

WATCHERS = {"nothing_is_left_of_the_file", "no_orphans", "watched_kinds"}  # wide fixtures that hold nothing themselves


def pytest_collection_finish():
    """Spare the collector of garbage the walk through thousands of tests, again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_collector():
    """Keep the collector of garbage from running: what a signal raises in a finaliser is swallowed there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive():
    """Let Ctrl-C end the programs that tests start, also where a shell runs the tests in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory):
    """Give the tests a folder for temporary files that nobody else writes to."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("temporary"))
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))  # where beacons have their folder
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))  # where a machine has its home
        watch_loops()
        yield


@pytest.fixture(scope="session")
def ray_session(own_temporary_folder):
    """A small Ray cluster on this machine, and a switchboard, that all tests of a session share."""
    import ray

    from whywait.runtime.authority import Authority

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


@pytest.fixture(scope="session", autouse=True)
def watched_kinds(request):
    """What is watched for leaks; the cluster that a session with Ray shares opens files when it likes."""
    with_ray = [item for item in request.session.items if item.get_closest_marker("ray")]
    if with_ray:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_TMPDIR", "/tmp")  # the names of its sockets have to be short
    if any(item.path.parent.name == "conformance" for item in with_ray):
        request.getfixturevalue("ray_session")
    return ("threads", "children") if with_ray else Held._fields


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_of_the_file(own_temporary_folder, watched_kinds):
    """O5: when a file of tests is through, no thread, process, open file, loop or temporary file of it is left."""
    before = Held.now()
    yield
    assert left_since(before, watched_kinds) == []


@pytest.fixture(autouse=True)
def nothing_is_left(request, nothing_is_left_of_the_file, watched_kinds):
    """O5: the same for each test, but for those that share something with others of their file."""
    definitions = request.node._fixtureinfo.name2fixturedefs
    shared = [
        name
        for name, found in definitions.items()
        if found[-1].scope != "function" and "/" in found[-1].baseid and name not in WATCHERS
    ]
    before = Held.now()
    yield
    if not shared:
        assert left_since(before, watched_kinds) == []
