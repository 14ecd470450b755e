"""What ``submit`` takes: from the arguments as the user wrote them to what the kernel takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from whywait.errors import ConfigError, ForeignRef, UnknownTask
from whywait.handle import Handle
from whywait.kernel.model import HIGHEST, LOWEST, Demand, Policy, Priority, Ref, Retry, Submission, Task, make_demand
from whywait.settings import UNSET, Seconds, Size, Unset, as_retry, optional_ns, size

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.kernel.model import Scope as KernelScope


class BodyOptions(TypedDict, total=False):
    """What may be said of a body, whether it runs once or again and again."""

    kwargs: Mapping[str, Any] | None
    priority: int | str
    cpu: int
    ram: Size
    vram: Size
    resources: Mapping[str, Size] | None
    timeout: Seconds | None
    retry: int | Retry
    max_wait: Seconds | None
    engine: Any


class TaskOptions(BodyOptions, total=False):
    """What a task may set for itself; what is left out is inherited from its scope."""

    id: str | None
    after: Iterable[Any]
    after_ended: Iterable[Any]


class Call(NamedTuple):
    """One task of a batch for ``submit_many``."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    options: TaskOptions | None = None


_OPTIONS: Final = TaskOptions.__annotations__.keys()
_OF_POLICY: Final = frozenset(("timeout", "retry", "max_wait"))
_OF_DEMAND: Final = frozenset(("cpu", "ram", "vram", "resources"))


def prepare(  # noqa: C901, PLR0912 - one look at each option
    authority: Authority,
    kernel_scope: KernelScope,
    handle: Handle[Any],
    args: tuple[Any, ...],
    options: TaskOptions,
    what: str = "a task",
    known: Iterable[str] = (),
) -> Submission:
    """Return what the kernel takes for a call with these options; the handle gets its engine and its arguments.

    ``what`` is what a refusal calls it, ``known`` are the options that were taken already.
    """
    get: Callable[..., Any] = options.get
    wants_demand = wants_policy = False
    for key in options:
        if key in _OF_DEMAND:
            wants_demand = True
        elif key in _OF_POLICY:
            wants_policy = True
        elif key not in _OPTIONS:
            unknown = ", ".join(sorted(options.keys() - _OPTIONS))
            allowed = ", ".join((*known, *_OPTIONS))
            raise TypeError(f"{what} has no option {unknown} (a function's own go into kwargs): use {allowed}")
    name = get("id")
    if name is not None and name.__class__ is not str:
        raise ConfigError(f"task id {name!r} is not allowed: use a string")
    engine = get("engine")
    if engine is not None:
        handle._engine = authority.engines.get(engine)
    after: Iterable[Any] = get("after", ())
    kwargs = get("kwargs")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ConfigError(f"kwargs {kwargs!r} is not allowed: use a dict of the function's keyword arguments")
    if args or kwargs:
        awaited = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, Handle)]
        if kwargs or awaited:
            handle._kwargs = dict(kwargs or {})
        if awaited:
            after = (*_each(after or ()), *awaited)
    priority = get("priority", Priority.NORMAL)
    if priority.__class__ is not int or not LOWEST <= priority <= HIGHEST:
        priority = Priority.parse(priority)
    demand: Demand = ()
    if wants_demand:
        sizes = get("cpu", 0), get("ram", 0), get("vram", 0)
        resources = get("resources")
        try:
            demand = _demand_with(*sizes, resources) if resources else _demand(*sizes)
        except TypeError:  # what is no number and no string may not be hashable
            raise ConfigError(f"demand {sizes!r} of cpu, ram and vram is not allowed: use ints or sizes") from None
    policy = None
    if wants_policy:
        policy = changed(kernel_scope.policy, get("timeout", UNSET), get("retry", UNSET), get("max_wait", UNSET))
    after_ended = get("after_ended", ())
    return Submission(
        kernel_scope,
        name,
        priority,
        demand,
        tuple([_task(authority, dependency) for dependency in _each(after)]) if after else (),
        tuple([_task(authority, dependency) for dependency in _each(after_ended)]) if after_ended else (),
        policy,
        handle,
    )


def awaited_tasks(authority: Authority, handle: Handle[Any], args: tuple[Any, ...]) -> list[Task | str] | None:
    """Return the tasks whose results a call without options takes; None: there are none."""
    awaited = None
    for value in args:
        if isinstance(value, Handle):
            if awaited is None:
                awaited = []
                handle._kwargs = {}  # its arguments are looked at again before the call
            awaited.append(value._task if value._authority is authority else _task(authority, value))
    return awaited


def changed(
    base: Policy, timeout: Seconds | Unset | None, retry: int | Retry | Unset, max_wait: Seconds | Unset | None
) -> Policy:
    """Return a policy with what was given; the rest comes from ``base``."""
    try:
        return _changed(base, timeout, retry, max_wait)
    except TypeError:  # what cannot be hashed is no such value either: let the check say which
        return _changed.__wrapped__(base, timeout, retry, max_wait)


@lru_cache(maxsize=256, typed=True)
def _changed(
    base: Policy, timeout: Seconds | Unset | None, retry: int | Retry | Unset, max_wait: Seconds | Unset | None
) -> Policy:
    return Policy(
        timeout_ns=base.timeout_ns if isinstance(timeout, Unset) else optional_ns("timeout", timeout),
        retry=base.retry if isinstance(retry, Unset) else as_retry(retry),
        max_wait_ns=base.max_wait_ns if isinstance(max_wait, Unset) else optional_ns("max_wait", max_wait),
    )


def _demand_with(cpu: int, ram: Size, vram: Size, resources: Mapping[str, Size]) -> Demand:
    if not isinstance(resources, Mapping):
        raise ConfigError(f"resources {resources!r} is not allowed: use a dict of names and amounts")
    named = {name: size(name, amount) for name, amount in resources.items()}
    return make_demand(cpu, size("ram", ram), size("vram", vram), named)


@lru_cache(maxsize=256, typed=True)
def _demand(cpu: int, ram: Size, vram: Size) -> Demand:
    return make_demand(cpu, size("ram", ram), size("vram", vram))


def _each(dependencies: Any) -> Iterable[Any]:  # noqa: ANN401 - checked here
    """Return several dependencies; one alone may be written without brackets."""
    if dependencies.__class__ in (list, tuple):
        return dependencies
    if isinstance(dependencies, str | Handle | Ref):
        return (dependencies,)
    if not isinstance(dependencies, Iterable):
        raise ConfigError(f"dependencies are a list of handles, refs or ids, not {dependencies!r}")
    return dependencies


def _task(authority: Authority, dependency: Any) -> Task | str:  # noqa: ANN401 - checked here
    """Turn a handle, a ref or an id into what the kernel takes."""
    if isinstance(dependency, Handle):
        if dependency._authority is not authority:
            raise ForeignRef(f"{dependency!r} belongs to another authority: it cannot be awaited here")
        return dependency._task
    if isinstance(dependency, str):
        return dependency
    if isinstance(dependency, Ref):
        return authority.get(dependency)._task
    raise UnknownTask(f"a dependency is a handle, a ref or an id, not {dependency!r}")
