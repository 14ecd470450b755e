"""A program that runs CPython's own tests of its pools against Executor, and tells how they went, as JSON.

``python cpython_pools.py process test.test_concurrent_futures.test_init NAME...``: all tests of that module that use
such a pool, but for those with one of the names. Nothing of the tests is copied: they are those of the interpreter that
runs this, and find an Executor wherever they look for a pool.
"""

import concurrent.futures
import importlib
import json
import sys
import unittest
from pathlib import Path

from whywait import Executor


class ThreadPoolExecutor(Executor):
    """What the tests of thread pools find."""


class ProcessPoolExecutor(Executor):
    """What the tests of process pools find."""

    def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), **options):
        options.update(engine="process", mp_context=mp_context)
        super().__init__(max_workers, initializer=initializer, initargs=initargs, **options)

    def terminate_workers(self):
        """Not offered; since 3.14 the tests look for it, and for the next one, when they are imported."""
        raise NotImplementedError

    kill_workers = terminate_workers


KINDS = {"thread": ThreadPoolExecutor, "process": ProcessPoolExecutor}


def replace():
    """Let an Executor be found instead of the pools of the standard library."""
    for pool in KINDS.values():
        setattr(concurrent.futures, pool.__name__, pool)


def tests_of(module, kind, left_out):
    """Return the tests of a module that use pools of a kind; of process pools those that start processes as we do."""
    suite = unittest.TestSuite()
    for case in vars(module).values():
        is_case = isinstance(case, type) and issubclass(case, unittest.TestCase)
        if is_case and getattr(case, "executor_type", None) is KINDS[kind] and getattr(case, "ctx", "spawn") == "spawn":
            names = unittest.defaultTestLoader.getTestCaseNames(case)
            suite.addTests(case(name) for name in names if name not in left_out)
    return suite


def in_scripts(module):
    """Let the scripts that tests run find an Executor, too."""
    original = getattr(module, "assert_python_ok", None)
    first = (
        f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import cpython_pools; cpython_pools.replace()\n"
    )
    if original is not None:
        module.assert_python_ok = lambda flag, script: original(flag, first + script)


def main(kind, name, *left_out):
    replace()
    module = importlib.import_module(name)
    in_scripts(module)
    suite = tests_of(module, kind, left_out)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(suite)
    told = {
        "ran": result.testsRun,
        "failed": {test.id(): text for test, text in [*result.failures, *result.errors]},
        "skipped": {test.id(): text for test, text in result.skipped},
    }
    print(f"\n{json.dumps(told)}")  # the tests print, too


if __name__ == "__main__":
    main(*sys.argv[1:])
