"""The kernel in virtual time: a workload runs to its end without a thread, a clock or a wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import MEMORY, MOST, WELL_KNOWN, Budget, Limits, Policy
from whywait.kernel.order import Aging, Order, Strict
from whywait.kernel.state import Wait
from whywait.options import SIMULATION, table
from whywait.simulation.size import check_size
from whywait.simulation.tally import SimulationResult, Tally
from whywait.simulation.virtual import BEYOND_NS, LIMITS, Progress, VirtualEngine, make_policy
from whywait.simulation.workload import Workload
from whywait.support.devices import GPU
from whywait.support.forms import Form, Option, read_table
from whywait.support.lines import Path
from whywait.support.problems import refusal
from whywait.support.units import NS_PER_S, in_ms, shown

__all__ = ["Simulation", "SimulationResult"]

_STARVATION_TIMEOUT_NS: Final = 30 * NS_PER_S


class Simulation:
    """A workload and the settings to run it under, ready to :meth:`run` in virtual time.

    ``workload`` is the dict of a workload file (or a checked :class:`Workload`). Options are those of the Authority
    and win over the file's ``config``; no environment is read. ``seed`` is where jitter starts from: the same workload,
    options and seed give the same result. ``progress(done, total)`` is called now and then.
    """

    def __init__(
        self,
        workload: Mapping[str, Any] | Workload,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        **authority_options: Any,  # noqa: ANN401  each is checked against its own entry of _OPTIONS
    ) -> None:
        """Check workload and options; every problem is a ConfigError that names the place."""
        self._workload = workload if isinstance(workload, Workload) else Workload(workload)
        self._seed = seed
        self._progress = progress
        options = read_table(_OPTIONS, authority_options, (), _refuse)
        if options.get("gpus") is not None and "vram" not in options:
            options["vram"] = None  # it is the memory of the cards
        self._config = {**self._workload.config, **options}
        self._fixed = _names_of_limits(options)
        check_size(self._workload, self._config)
        try:
            self._order = _make_order(self._config)
            self._budget = make_budget(self._config)
        except ConfigError as error:
            raise self._workload.problem(("config",), str(error)) from None

    def run(self) -> SimulationResult:
        """Run the workload to its end; can be called again and gives the same."""
        workload, config, order = self._workload, self._config, self._order
        chance = Random(self._seed)
        tally = Tally(workload, config.get("starvation_timeout_ns", _STARVATION_TIMEOUT_NS))
        unlimited = _unlimited(self._budget, workload)
        kernel = Kernel(
            Limits(**{key: config[key] for key in LIMITS if key in config}),
            replace(self._budget, hard={**self._budget.hard, **dict.fromkeys(unlimited, MOST)}),
            order,
            make_policy(Policy(), config),
            backfill=config.get("backfill", "greedy"),
            starvation_timeout_ns=BEYOND_NS,
            jitter=lambda: chance.uniform(-1.0, 1.0),
            emit=tally.emit,
        )
        VirtualEngine(kernel, tally, workload, self._progress, self._fixed).run()
        return SimulationResult(tally, self._describe(), unlimited, len(workload.ids), kernel)

    def _describe(self) -> dict[str, Any]:
        """Return the settings that tell this run from others."""
        order, config = self._order, self._config
        run: dict[str, Any] = {"order": "strict"}
        if isinstance(order, Aging):
            run = {"order": "aging", "every_ms": order.every * 1000, "boost": order.boost, "cap": order.cap}
        run |= {"slots": config.get("slots"), "backfill": config.get("backfill", "greedy"), "seed": self._seed}
        if GPU in self._budget.devices:
            run["gpus"] = dict(self._budget.devices[GPU])
        return run | {"from_ms": in_ms(min(self._workload.at_ms, default=0) * self._workload.unit_ns)}


def _refuse(path: Path, message: str) -> None:
    raise refusal(None, path, message)


def _make_order(config: Mapping[str, Any]) -> Order:
    chosen = config.get("order", "aging")
    if isinstance(chosen, Strict | Aging):
        return chosen
    ties = config.get("ties", "submission")
    if chosen == "strict":
        return Strict(ties)
    return Aging(config.get("every_ns", 5 * NS_PER_S) / NS_PER_S, config.get("boost", 10), config.get("cap", 99), ties)


def make_budget(config: Mapping[str, Any]) -> Budget:
    """Return the budget that the options of a file or a program ask for."""
    devices = {kind: dict.fromkeys(units, 0) for kind, units in config.get("devices", {}).items()}
    if config.get("gpus") is not None:
        devices[GPU] = config["gpus"]
        if config.get("vram") is not None:
            raise ConfigError("vram is the memory of each gpu: say it with gpus")
    hard = {"cpu": config.get("cpu"), **config.get("resources", {})}
    soft = {"vram": config.get("vram"), **config.get("soft", {})}
    (hard if config.get("hard_ram") else soft)["ram"] = config.get("ram")
    return Budget(
        {name: amount for name, amount in hard.items() if amount is not None},
        {name: amount for name, amount in soft.items() if amount is not None},
        devices,
    )


def _names_of_limits(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the limits that options have set: changes of them that a record has do not count."""
    plain = {"slots": Wait.SLOT, "gpus": GPU, "cpu": "cpu", "ram": "ram", "vram": "vram"}
    named = (name for option in ("resources", "soft", "devices") for name in options.get(option, ()))
    return frozenset((*(plain[option] for option in options if option in plain), *named))


def _unlimited(budget: Budget, workload: Workload) -> frozenset[str]:
    """Return the resources that tasks use and of which there is any amount: gates of their own account for them."""
    kinds = (*workload.kinds, *(periodic.kind for periodic in workload.periodics))
    of_devices = {MEMORY.get(kind) for kind in budget.devices}
    known = (*budget.hard, *budget.soft, *of_devices)
    return frozenset(name for kind in kinds for name, _ in kind.demand if name in WELL_KNOWN and name not in known)


def _check_order(value: object) -> Order | str:
    if isinstance(value, Strict | Aging) or value in ("strict", "aging"):
        return value
    raise ConfigError(f'{shown(value)} is not an order: expected Strict(...), Aging(...), "strict" or "aging"')


_ROWS: Final = (
    Option("order", Form(_check_order, {}), "Strict(...), Aging(...), or the name of one", (SIMULATION,)),
    # Bodies obey at once, wait for no other task and use what they ask for, so these change nothing here.
    *(
        Option(name, Form(lambda value: value, {}), "accepted, and without effect", (SIMULATION,))
        for name in ("pause_timeout", "grace", "engine", "when_blocked", "overdraft")
    ),
)
_OPTIONS: Final = table(SIMULATION, _ROWS)
