"""What ``submit`` takes: from the arguments as the user wrote them to what the kernel takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, NamedTuple

from whywait.errors import ConfigError, ForeignRef, UnknownTask
from whywait.kernel.limits import Demand, Policy, Priority, make_demand
from whywait.kernel.model import Ref, Submission, Task
from whywait.options import SUBMIT, read_keywords, table
from whywait.runtime.core import admit_task
from whywait.runtime.execution import Execution
from whywait.runtime.handle import Handle, new_handle
from whywait.runtime.lazy import Lazy, check_use
from whywait.runtime.option_types import TaskOptions
from whywait.runtime.remember import history_name, learned_ram
from whywait.runtime.services import CoreServices
from whywait.runtime.settings import OF_POLICY, policy_of, size
from whywait.runtime.terms import ScopeRecord, Terms
from whywait.support.learned import as_learned
from whywait.support.nested import PLAIN, nest_of


class Call(NamedTuple):
    """One task of a batch for ``submit_many``; ``scope`` is where it goes, if not to where the batch is submitted."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    options: TaskOptions | None = None
    scope: Any = None  # a Scope, or the key of one


CO_COROUTINE: Final = 0x80  # of the flags of a function's code, as `inspect` has it, which takes long to load
EMPTY: Final = Context()  # for all submissions with no variable set: an object less for the collector with each task
_OPTIONS: Final = table(SUBMIT).keys()
_OF_ONE_TASK: Final = frozenset(("id", "kwargs", "after_ended", "cancel_with_awaiter"))  # and `after`
_MISSING: Final = object()
_MOST_TERMS: Final = 1_000  # combinations of options that a scope remembers


# terms, name, after, after_ended
Asked = tuple[Terms, str | None, Sequence[Task | str], Sequence[Task | str]]


def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Handle[Any]:
    """Submit a task; a refusal raises and leaves nothing behind.

    The keywords are those of :class:`TaskOptions`; the function's own go into ``kwargs``.
    Handles among ``args`` and ``kwargs`` are dependencies and are replaced by their results.
    """
    return submit_call(self._open, fn, args, options)


def submit_call(scope: Any, fn: Callable[..., Any], args: tuple[Any, ...], options: Any) -> Handle[Any]:
    """Submit a call to a scope; the options are used up."""
    core, record = scope.core, scope
    try:
        plain = not fn.__code__.co_flags & CO_COROUTINE
    except AttributeError:
        plain = False
    engine = (record.plain_engine if plain else None) or scope.engine_for(fn, options)
    handle = new_handle(core, fn, args, copy_context() or EMPTY, engine)
    name: str | None = None
    after: Sequence[Task | str] = ()
    after_ended: Sequence[Task | str] = ()
    if options:
        last = record.last
        if last is not None and _is_same(options, last[0]):  # as those of the call before
            terms = last[1]
            if terms.engine is not None:
                handle.engine = terms.engine.here()
            if args:
                after = await_handles(core, record, handle)
        else:
            terms, name, after, after_ended = prepare(core, record, handle, options)
    else:
        terms = record.plain_terms
        if args:
            after = await_handles(core, record, handle)
    admit_task(core, handle, record.kernel_scope, terms, name, after, after_ended)
    return handle


def _is_same(options: dict[str, Any], others: dict[str, Any]) -> bool:
    """Return whether two calls have the very same options: what they mean is known then."""
    if len(options) != len(others):
        return False
    for option, value in options.items():  # noqa: SIM110 - no generator in the compiled core
        if others.get(option, _MISSING) is not value:
            return False
    return True


def prepare(
    core: CoreServices,
    record: ScopeRecord,
    execution: Execution,
    options: TaskOptions,
    what: str = "a task",
    known: Iterable[str] = (),
) -> Asked:
    """Return the terms of a call with these options, which are used up, its name and what it awaits.

    The execution gets its engine and its arguments. ``what`` is what a refusal calls it, ``known`` are the options
    that were taken already.
    """
    name = kwargs = None
    after: Any = options.pop("after") if "after" in options else ()
    after_ended: Any = ()
    if not _OF_ONE_TASK.isdisjoint(options):
        name, kwargs, after_ended = _take_own(execution, options)
    terms = record.plain_terms
    if options:
        found: Terms | None = None
        key = (*options, *options.values())
        try:
            found = record.terms.get(key)
        except TypeError:  # it has a value that cannot be hashed, such as a dict of resources
            key = ()
        if found is not None and tuple(map(type, options.values())) != found.kinds:  # 1 and True are not the same
            found, key = None, ()
        if found is not None:
            record.last = (options, found)  # type: ignore[assignment] # a TypedDict is a dict
        if found is None:  # not in the handler: what is wrong with the options is all that a refusal shows
            is_shared = not _learn(core, execution, name, options)
            found = _terms(core, record, options, key if is_shared else (), what, known)
        terms = found
        if terms.engine is not None:
            execution.engine = terms.engine.here()
    ended = tuple([_task(core, dependency) for dependency in each_dependency(after_ended)]) if after_ended else ()
    awaited: Sequence[Task | str] = await_handles(core, record, execution, ended) if execution.args or kwargs else ()
    if after:
        awaited = [*[_task(core, dependency) for dependency in each_dependency(after)], *awaited]
    return terms, name, awaited, ended


def request_for(core: CoreServices, record: ScopeRecord, handle: Handle[Any], options: TaskOptions) -> Submission:
    """Return what a batch takes for a call with these options, which are used up."""
    terms, name, after, after_ended = prepare(core, record, handle, options)
    asked = (terms.priority, terms.demand, after, after_ended, terms.policy, terms.slot)
    return Submission(record.kernel_scope, name, *asked, handle)


def _take_own(execution: Execution, options: TaskOptions) -> tuple[str | None, Mapping[str, Any] | None, Any]:
    """Take what only one task can have out of its options; return its name, kwargs, and what it awaits the end of."""
    pop: Callable[..., Any] = options.pop
    name, kwargs, after_ended = pop("id", None), pop("kwargs", None), pop("after_ended", ())
    if pop("cancel_with_awaiter", False):
        execution.cancel_with_awaiter = True
    if name is not None and name.__class__ is not str:
        raise ConfigError(f"task id {name!r} is not allowed: use a string")
    if kwargs is not None:
        if not isinstance(kwargs, Mapping):
            raise ConfigError(f"kwargs {kwargs!r} is not allowed: use a dict of the function's keyword arguments")
        execution.kwargs = dict(kwargs)
    return name, kwargs, after_ended


def _learn(core: CoreServices, execution: Execution, name: str | None, options: TaskOptions) -> bool:
    """Put what a task has learned to ask for in the place of "learned"; return whether it did."""
    learned = as_learned(options.get("ram"))
    if learned is not None:
        options["ram"] = learned_ram(core.history, learned, history_name(name, execution.fn))
    return learned is not None


def _terms(
    core: CoreServices,
    record: ScopeRecord,
    options: TaskOptions,
    key: tuple[Any, ...],
    what: str,
    known: Iterable[str],
) -> Terms:
    """Check the options that many tasks may share, and remember what they mean, by ``key`` if it is not empty."""
    if unknown := options.keys() - _OPTIONS:
        allowed = ", ".join((*known, *_OPTIONS))
        listed = ", ".join(sorted(unknown))
        raise TypeError(f"{what} has no option {listed} (a function's own go into kwargs): use {allowed}")
    get: Callable[..., Any] = options.get
    policy: Policy | None = None
    if not OF_POLICY.isdisjoint(options):
        given: Any = {name: value for name, value in options.items() if name in OF_POLICY}
        policy = policy_of(record.kernel_scope.policy, read_keywords(SUBMIT, given, what))
    engine, slot = get("engine"), get("slot", True)
    if not isinstance(slot, bool):
        raise ConfigError(f"slot {slot!r} is not allowed: use True or False")
    terms = Terms(
        Priority.parse(get("priority", Priority.NORMAL)),
        _demand(options),
        policy,
        core.engines.get(engine) if engine is not None else None,
        slot,
    )
    if key and len(record.terms) < _MOST_TERMS:
        terms.kinds = tuple(map(type, options.values()))
        record.terms[key] = terms
    return terms


def await_handles(
    core: CoreServices, record: ScopeRecord, execution: Execution, ended: Sequence[Task | str] = ()
) -> Sequence[Task | str]:
    """Return the tasks whose results a call takes; if it takes any, or a lazy resource, it is looked at again later.

    In containers, handles of tasks whose end is awaited anyway, ``ended``, stay handles: the body asks them.
    """
    args, kwargs = execution.args, execution.kwargs
    found: list[Execution | Lazy[Any]] = []
    kept = []
    for value in args:
        if value.__class__ in PLAIN:
            kept.append(value)
        else:
            kept.append(_kept(value, found, ended))
    kept_kwargs = {key: _kept(value, found, ended) for key, value in kwargs.items()} if kwargs else {}
    if not found:
        return ()
    awaited = []
    for each in found:
        if isinstance(each, Lazy):
            check_use(each, record.kernel_scope, execution.engine)
        else:
            if each.core is not core:
                raise _foreign(each)
            awaited.append(each)
    execution.args, execution.kwargs = tuple(kept), kept_kwargs
    return awaited


def _kept(value: Any, found: list[Execution | Lazy[Any]], ended: Sequence[Task | str]) -> Any:
    """Return an argument as an execution keeps it; add the executions and the lazy resources in it to ``found``."""
    if isinstance(value, Execution | Lazy):
        found.append(value)
        return value

    def keep(thing: Execution | Lazy[Any]) -> Execution | Lazy[Any] | None:
        return None if thing in ended else thing

    nest = nest_of(value, (Execution, Lazy), keep, (Execution, Lazy))
    if nest is None:
        return value
    found += nest.things
    return nest


def _demand(options: TaskOptions) -> Demand:
    get: Callable[..., Any] = options.get
    for name in ("resources", "devices"):
        given = get(name)
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(f"{name} {given!r} is not allowed: use a dict of names and amounts")
    named = {name: size(name, amount) for name, amount in (get("resources") or {}).items()}
    ram, vram = size("ram", get("ram", 0)), size("vram", get("vram", 0))
    return make_demand(get("cpu", 0), ram, vram, named, get("gpu", 0), get("devices"))


def each_dependency(dependencies: Any) -> Iterable[Any]:
    """Return several dependencies; one alone may be written without brackets."""
    if dependencies.__class__ in (list, tuple):
        return dependencies
    if isinstance(dependencies, str | Execution | Ref):
        return (dependencies,)
    if not isinstance(dependencies, Iterable):
        raise ConfigError(f"dependencies are a list of handles, refs or ids, not {dependencies!r}")
    return dependencies


def _task(core: CoreServices, dependency: Any) -> Task | str:
    """Turn a handle, a ref or an id into what the kernel takes."""
    if isinstance(dependency, Execution):
        if dependency.core is not core:
            raise _foreign(dependency)
        return dependency
    if isinstance(dependency, str):
        return dependency
    if isinstance(dependency, Ref):
        return core.find(dependency)
    raise UnknownTask(f"a dependency is a handle, a ref or an id, not {dependency!r}")


def _foreign(execution: Execution) -> ForeignRef:
    return ForeignRef(f"{execution!r} belongs to another authority: it cannot be awaited here")
