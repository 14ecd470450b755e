"""Simulations in one line: tasks, operations and settings in, what happened out."""

from whywait.simulation.simulation import Simulation


def task(id, at_ms=0, duration_ms=10, **fields):
    return {"id": id, "at_ms": at_ms, "duration_ms": duration_ms, **fields}


def op(at_ms, do, id):
    return {"at_ms": at_ms, "do": do, "id": id}


def simulate(*tasks, ops=(), periodics=(), options=None, **config):
    workload = {"config": config, "tasks": list(tasks), "ops": list(ops), "periodics": list(periodics)}
    return Simulation(workload, **options or {}).run()


def events(*args, **kwargs):
    return list(simulate(*args, **kwargs).events)
