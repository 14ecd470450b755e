"""CPython's own tests of its pools pass with an Executor, but for those that ask for something else by name."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cpython_pools

PACKAGE = "test.test_concurrent_futures"
INSIDE = "it looks into the pool: "
ALONE = "a worker process that dies, or what it cannot unpickle, costs one task and breaks no pool: "

FORCED = (
    "test_terminate_workers",
    "test_kill_workers",
    "test_force_shutdown_workers",
    "test_force_shutdown_workers_invalid_op",
    "test_force_shutdown_workers_dead_workers",
    "test_force_shutdown_workers_not_started_yet",
    "test_force_shutdown_workers_stops_pool",
    "test_force_shutdown_during_max_tasks_worker_exit",
)

# Tests that are left out, and why. Process pools are tested with the start method "spawn", which is that of ours.
LEFT_OUT = {
    "thread": {
        "test_hang_global_shutdown_lock": "it needs a process pool that forks, which is refused",
    },
    "process": {
        "test_del_shutdown": f"{INSIDE}its manager thread and its call queue",
        "test_processes_terminate": f"{INSIDE}it counts processes at once; here they come a moment later",
        "test_shutdown_no_wait": f"{INSIDE}its manager thread and its call queue",
        "test_saturation": f"{INSIDE}it counts processes at once; here they come a moment later",
        "test_max_tasks_per_child_defaults_to_spawn_context": f"{INSIDE}the context of multiprocessing; there is none",
        "test_python_finalization_error": f"{INSIDE}it refuses a thread of its; ours go on without the thread refused",
        "test_traceback": f"{INSIDE}the private type of the text that stands for a traceback",
        "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": f"{INSIDE}it replaces its manager thread and its pipe",
        "test_shutdown_deadlock_pickle": f"{INSIDE}it joins its manager thread",
        "test_shutdown_gh_132969_case_1": f"{INSIDE}it joins its manager thread",
        "test_shutdown_gh_132969_case_2": f"{INSIDE}it joins its manager thread",
        "test_killed_child": f"{ALONE}it kills one and wants the pool broken",
        "test_broken_process_pool_traceback": f"{ALONE}it kills one and wants the pool broken",
        "test_error_at_task_unpickle": f"{ALONE}TaskFailed",
        "test_exit_at_task_unpickle": f"{ALONE}TaskFailed, with the SystemExit in its text",
        "test_exit_during_result_pickle_on_worker": "a result that exits while it is pickled gives a PicklingError",
        "test_error_during_result_unpickle_in_result_handler": f"{ALONE}TaskFailed",
        "test_exit_during_result_unpickle_in_result_handler": f"{ALONE}TaskFailed, whose cause is the SystemExit",
        "test_failed_worker_replacement_breaks_pool": f"{ALONE}it lets the start of one fail and wants the pool broken",
        "test_gc_during_max_tasks_worker_exit_gh152967": f"{INSIDE}its processes",
        "test_shutdown_no_wait_max_tasks_gh119592": f"{INSIDE}it joins its manager thread",
    }
    | dict.fromkeys(FORCED, "ending processes by hand is not offered: shutdown() and cancel() do that"),
}
NEWER = {  # not every release has them
    "test_shutdown_gh_132969_case_1",
    "test_shutdown_gh_132969_case_2",
    "test_broken_process_pool_traceback",
    "test_failed_worker_replacement_breaks_pool",
    "test_gc_during_max_tasks_worker_exit_gh152967",
    "test_shutdown_no_wait_max_tasks_gh119592",
    *FORCED,
}
MODULES = {
    "thread": ("test_init", "test_wait", "test_as_completed", "test_shutdown", "test_thread_pool"),
    "process": ("test_init", "test_wait", "test_as_completed", "test_shutdown", "test_process_pool", "test_deadlock"),
}
FEWEST = {"thread": 40, "process": 40}  # tests of all modules together


def folder_of_tests():
    """Return where this interpreter has its tests of pools, None if it was installed without them."""
    found = importlib.util.find_spec("test") and importlib.util.find_spec(PACKAGE)
    return Path(found.origin).parent if found and found.submodule_search_locations else None


needs_tests = pytest.mark.skipif(
    folder_of_tests() is None, reason=f"this interpreter was installed without the package {PACKAGE}"
)


@needs_tests
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", MODULES)
def test_the_tests_of_its_pools_pass(kind, tmp_path):
    """O5, S1, T10: an Executor is a drop-in, by the word of the standard library's own tests."""
    ran = 0
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONUNBUFFERED", "TMPDIR"}}
    for module in MODULES[kind]:
        program = [sys.executable, cpython_pools.__file__, kind, f"{PACKAGE}.{module}", *LEFT_OUT[kind]]
        done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert told["failed"] == {}, module
        ran += told["ran"]
    assert ran >= FEWEST[kind]


@needs_tests
def test_what_is_left_out_is_there():
    """A name in the table that no test has any more would hide nothing, and mislead."""
    text = "".join(path.read_text(encoding="utf-8") for path in folder_of_tests().glob("*.py"))
    names = {name for table in LEFT_OUT.values() for name in table} - NEWER
    assert [name for name in names if f"def {name}(" not in text] == []
