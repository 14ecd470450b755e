"""Errors of the process engine that are also those of process pools: programs that look for these find them.

Loaded when one is raised: the module of process pools takes long to load.
"""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool

from whywait.errors import TaskFailed


class WorkerLost(TaskFailed, BrokenProcessPool):
    """The worker process of a task has died; other tasks go on in others."""


class InitializerFailed(TaskFailed, BrokenProcessPool):
    """The initializer of worker processes has failed: their engine runs no task any more."""
