"""Authority: what users make and hold; the core, with its engines and scopes, is inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from whywait.errors import ConfigError, InvalidTransition
from whywait.kernel.durations import Seconds
from whywait.kernel.events import Event
from whywait.kernel.model import Ref
from whywait.kernel.state import ScopeState, Wait
from whywait.options import AUTHORITY, table
from whywait.runtime.handle import Handle
from whywait.runtime.journal import Events
from whywait.runtime.option_types import AuthorityOptions, LimitOptions, ScopeOptions
from whywait.runtime.scope import OpenScope, Scope, Submitter, open_of
from whywait.runtime.services import CoreServices
from whywait.runtime.settings import Settings, resized
from whywait.support.lazy import asyncio
from whywait.support.logger import log_of

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from whywait.devtools.server import DevTools
    from whywait.kernel.snapshot import Snapshot
    from whywait.observe.explain import Why
    from whywait.observe.history import History
    from whywait.observe.report import Report

DEFAULT_SCOPE: Final = "default"


class Authority(Submitter):
    """Governs tasks: decides what runs when, under one budget, and can always say why something waits.

    To run something: ``submit``, ``map``, ``submit_many``, ``periodic``, here or in a ``scope`` with limits of its own.
    To ask: ``why``, ``report``, ``snapshot``, ``stats``, ``events``, ``devtools``.
    To change what runs: ``cancel``, ``pause``, ``resume``, ``resize``.
    To end: leave the ``with`` block, or ``dispose``.

    Every argument that is left out comes from the environment (``WHYWAIT_*``) or has a default. ``gpus`` is "auto",
    how many there are, the memory of each, or names with memory; ``devices`` are the units of other kinds.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        record: str | Path | None = None,
        events_file: str | Path | None = None,
        log: logging.Logger | None = None,
        **options: Unpack[AuthorityOptions],
    ) -> None:
        """Resolve the settings; no thread starts before it is needed.

        The keywords are those of :class:`AuthorityOptions`, or ``settings``: the whole configuration as one object.
        ``record`` is a file for all commands, to run the same again, and ``events_file`` one for all events, as JSON
        Lines. Both, and the ``history``, are written as the run goes on, end with the authority, and cost nothing but
        themselves if they cannot be written any more. ``log`` takes what would go to the logger ``whywait``.
        """
        to_log = log_of(log)
        if settings is None:
            settings = Settings.from_env(log=to_log, **options)
        elif not isinstance(settings, Settings):
            raise ConfigError(f"settings {settings!r} are not allowed: use Settings(...)")
        elif options:
            raise ConfigError(f"{', '.join(options)} beside settings: put all of it into Settings(...)")
        self._core = core = CoreServices(settings, record, to_log)
        self._on_close: list[Callable[[], None]] = []  # what ends with the authority, the last one first
        self._devtools_url: str | None = None
        if events_file is not None:
            self._write_events(events_file)
        self._whole = root = OpenScope(core, core.engines.default, settings.grace)
        root.kernel_scope = core.kernel.root
        self._open = open_of(root.open(DEFAULT_SCOPE, {}))

    @classmethod
    def from_env(cls) -> Self:
        """Make an authority from the environment variables ``WHYWAIT_*`` alone."""
        return cls()

    @property
    def settings(self) -> Settings:
        """What the authority was made with: arguments, environment and defaults; ``resize`` does not change it."""
        return self._core.settings

    @property
    def history(self) -> History | None:
        """What finished runs teach, if ``history`` names a file for it."""
        return self._core.history

    # Scopes and tasks

    def scope(self, key: str, **options: Unpack[ScopeOptions]) -> Scope:
        """Open a scope: a namespace with limits of its own that ends everything it started."""
        return self._whole.open(key, options)

    def get_scope(self, key: str) -> Scope:
        """Return the living scope of a key."""
        scope: Scope = self._core.find_scope(key).scope
        return scope

    def get(self, ref: Ref | str) -> Handle[Any]:
        """Return the handle of a living task by its ref or id."""
        return self._core.find(ref)

    def why(self, ref: Ref | str) -> Why:
        """Return why a task waits, or what it does, by its ref or id."""
        return self._core.why(self._core.find(ref))

    def cancel(self, ref: Ref | str) -> None:
        """Cancel a task by its ref or id, as its handle does; one that has ended stays as it is."""
        execution = self._core.find_or_ended(ref)
        if execution is not None:
            execution.cancel()

    def pause(self, ref: Ref | str) -> None:
        """Pause a task by its ref or id, as its handle does; one that has ended stays as it is."""
        execution = self._core.find_or_ended(ref)
        if execution is not None:
            execution.pause()

    def resume(self, ref: Ref | str) -> None:
        """Resume a paused task by its ref or id, as its handle does; one that has ended is an error."""
        execution = self._core.find_or_ended(ref)
        if execution is None:
            raise InvalidTransition(f"task {ref!r} has ended, it is not paused: there is nothing to resume")
        execution.resume()

    def set_periodic_enabled(self, id: str, enabled: bool, *, immediately: bool = False) -> None:
        """Switch a periodic on (from its next tick, or now if ``immediately``) or off, by ``id`` or ``scope/id``."""
        self._core.set_periodic_enabled(id, enabled, immediately=immediately)

    def resize(self, **limits: Unpack[LimitOptions]) -> None:
        """Change limits while tasks run: what is given here is what there is from now on; what runs goes on.

        As long as more is held than there is, nothing starts that needs any. A GPU or another unit that is left out
        of its kind is gone: the tasks on it keep it, and no other task gets it until it is named again.
        """
        slots, budget = resized(self.settings.hard_ram, limits)
        slot: dict[str, int] = {} if slots is None else {Wait.SLOT: slots}
        self._core.resize({**slot, **budget.hard}, budget.soft, budget.devices)

    # What happens and what has happened

    def snapshot(self) -> Snapshot:
        """Return an immutable picture of everything there is now."""
        return self._core.snapshot(self._core.kernel.root)

    def stats(self) -> dict[str, Any]:
        """Return counters: active, queued (READY), not ready, submitted, by outcome, drops, waits, starvation."""
        return self._core.stats()

    def events(self, since: int = 0, limit: int | None = None) -> Events:
        """Return remembered events after ``since``, oldest first; their ``skipped`` says how many are lost."""
        return Events(*self._core.raw_events(since, limit))

    def report(self) -> Report:
        """Return where the waiting of the run went, by cause and by holder, and how full slots and budget were."""
        return self._core.waiting_report()

    def subscribe(self, fn: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``fn`` with every event from now on, in order; return a function that ends it."""
        return self._core.subscribe(fn)

    def devtools(
        self,
        port: int | None = 0,
        *,
        control: bool = True,
        host: str = "127.0.0.1",
        expose: bool = False,
        hosts: Iterable[str] = (),
        token: str | None = None,
        open_metrics: bool = False,
        name: str = "",
        announce: bool = True,
        file: str | None = None,
    ) -> DevTools:
        """Serve a page that shows this run as it happens, until the authority is disposed of; print its address.

        Every request needs the token that is in the address: a new one, or ``token``; ``open_metrics=True`` leaves
        ``/metrics`` open.
        ``control=False`` leaves out everything that changes the run. ``port=None`` listens on none: mount ``.app`` in
        an ASGI app. ``expose=True`` is needed for a ``host`` that other machines can reach; ``hosts`` are further names
        under which it is called then. ``file`` is what ``whywait top`` may call the run by; the started program if left
        out.
        """
        if self._core.kernel.root.state == ScopeState.DISPOSED:
            raise InvalidTransition("the authority has ended: there is nothing left to show; open DevTools before")
        from whywait.devtools import open_devtools

        tools = open_devtools(
            self,
            control=control,
            name=name,
            announce=announce,
            file=file,
            host=host,
            port=port,
            expose=expose,
            hosts=hosts,
            token=token,
            open_metrics=open_metrics,
        )
        self._on_close.append(lambda: tools.close(run_is_over=True))
        self._devtools_url = tools.url if tools.port is not None else None
        return tools

    # The end

    def dispose(self, grace: Seconds | None = None) -> None:
        """End everything at once: abort what runs, drop what waits, wait for the bodies, release the engines."""
        super().dispose(grace)
        self._close()

    async def dispose_async(self, grace: Seconds | None = None) -> None:
        """Do the same without blocking the event loop."""
        await super().dispose_async(grace)
        await asyncio.to_thread(self._close)

    def _repr_html_(self) -> str:
        """Return a picture for a notebook: what runs, what waits, how full slots and budget are, a link to DevTools."""
        return self._whole.html("authority", self._devtools_url)

    async def __aenter__(self) -> Self:
        """Use as an async block; coroutine functions run on this event loop."""
        self._core.engines.use_loop(asyncio.get_running_loop())
        return self

    def _write_events(self, path: str | Path) -> None:
        from whywait.bridges.jsonl import JsonLines

        try:
            self._on_close.append(JsonLines(self, path).close)
        except OSError:
            self._core.close()  # the record was opened
            raise

    def _close(self) -> None:
        self._core.close()
        while True:
            try:
                close = self._on_close.pop()  # in one step: the authority may be disposed of in several threads
            except IndexError:
                return
            close()


core_of: Final[Callable[[Authority], CoreServices]] = attrgetter("_core")  # for what stands around the runtime
root_of: Final[Callable[[Authority], OpenScope]] = attrgetter("_whole")  # the same


def _show_options() -> None:
    """Have ``help(Authority)`` name each option, with its type and default; the environment's are shown as ``...``."""
    shown = signature(Authority.__init__)
    beside = [each for each in shown.parameters.values() if each.kind != Parameter.VAR_KEYWORD]
    options = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=... if option.variable else option.default,
            annotation=option.form.hint,
        )
        for name, (_, _, option) in table(AUTHORITY).items()
    ]
    Authority.__init__.__signature__ = shown.replace(parameters=[*beside, *options])  # type: ignore[attr-defined]


_show_options()
