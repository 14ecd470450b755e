"""Random commands for a kernel and its model: all kinds, at any time, legal or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pair import MS_NS, Pair
from strategies import PRIORITIES, Chooser

NAMES = tuple(f"{letter}{digit}" for letter in "abcdefg" for digit in range(10))
SCOPE_KEYS = ("p", "q", "r", "s")
WIDE = 40  # so much cpu that nearly every demand differs
DEMANDS = ("cpu", "ram", "vram", "lic", "disk")
UNITS = {"gpu": ("0", "2", "10", "a"), "rig": ("b", "a", "c")}


def drive(choose: Chooser, steps: int, *, devices: bool = False, blocks: bool = False, stops: bool = False) -> Pair:
    """Feed so many commands to a new pair, with devices in its budget or without; it compares after each.

    ``blocks``: bodies wait for other tasks too, and may lend their slots meanwhile. ``stops``: the processes of tasks
    are stopped and go on.
    """
    settings = make_settings(choose)
    if blocks:
        add_lending(choose, settings["limits"])
    pair = Pair(add_devices(choose, settings) if devices else settings)
    commands = Commands(choose, pair)
    if blocks:
        commands.weighted += [commands.block] * 20
        commands.lends = True
    if stops:
        commands.weighted += [commands.stop] * 15
    for _ in range(choose.choice((2, 1, 0))):
        commands.open_scope()
    for _ in range(steps):
        commands.step()
    pair.pass_time(pair.now)
    return pair


def make_settings(choose: Chooser) -> dict[str, Any]:
    hard = {name: choose.integer(1, 4) for name in ("cpu", "lic") if choose.chance(50)}
    if choose.chance(10):
        hard["cpu"] = WIDE
    soft = {name: choose.integer(0, 4) for name in ("ram", "vram", "disk") if choose.chance(40)}
    aging = None
    if choose.chance(70):
        aging = {
            "every_ms": choose.choice((1, 2, 3, 5, 10)),
            "boost": choose.choice((10, 1, 15, 50, 0)),
            "cap": choose.choice((99, 100, None, 60)),
        }
    return {
        "limits": make_limits(choose),
        "hard": hard,
        "soft": soft,
        "aging": aging,
        "ties": choose.choice(("submission", "id")),
        "backfill": choose.choice(("greedy", "none")),
        "overdraft": choose.choice(("count", "warn", "kill")),
        "policy": make_policy(choose, 10),
        "pause_timeout_ns": choose.choice((5, 2, 50)) * MS_NS,
        "starvation_timeout_ns": choose.choice((6, 3, 20)) * MS_NS,
        "jitter": choose.choice((0.5, -0.5, 1.0, -1.0)),
    }


def add_lending(choose: Chooser, limits: dict[str, Any]) -> None:
    """S7: so that more storms lend than hold."""
    limits["when_blocked"] = choose.choice(("lend", "lend", "hold"))


def add_devices(choose: Chooser, settings: dict[str, Any]) -> dict[str, Any]:
    """The memory of the first kind is asked for by `vram`, so no resource can have that name."""
    soft = {name: limit for name, limit in settings["soft"].items() if name != "vram"}
    kinds = choose.choice((("gpu",), ("gpu", "rig"), ("rig",)))
    settings |= {"soft": soft, "devices": {kind: make_units(choose, kind) for kind in kinds}}
    if choose.chance(50):  # so that nothing else stops a task
        settings |= {"limits": settings["limits"] | {"slots": None}, "hard": {}, "soft": {}}
    return settings


def make_units(choose: Chooser, kind: str) -> dict[str, int]:
    names = [name for name in UNITS[kind] if choose.chance(60)]
    return {name: choose.integer(0, 6) if kind == "gpu" else 0 for name in names or UNITS[kind][:1]}


def make_limits(choose: Chooser) -> dict[str, Any]:
    limits: dict[str, Any] = {"slots": choose.choice((1, 2, 3, 4, None))}
    if choose.chance(25):
        limits["queue_limit"] = choose.choice((3, 2, 5, 4, 1, 0))
    if choose.chance(70):
        limits["overflow"] = "displace"
    if choose.chance(6):
        limits["when_busy"] = "reject"
    if choose.chance(3):
        limits["max_spawn"] = choose.integer(0, 9)
    return limits


def make_policy(choose: Chooser, percent: int) -> dict[str, Any]:
    policy: dict[str, Any] = {}
    if choose.chance(percent):
        policy["timeout_ns"] = choose.integer(1, 8) * MS_NS
    if choose.chance(percent):
        policy["max_wait_ns"] = choose.integer(0, 8) * MS_NS
    if choose.chance(percent):
        policy["retry"] = {"times": choose.integer(1, 3), "backoff_ms": choose.choice((0, 1, 2, 3))}
        if choose.chance(30):
            policy["retry"]["grow"] = {choose.choice(("ram", "cpu", "lic")): choose.choice((2.0, 1.5, 1))}
    return policy


class Commands:
    """Picks one command after the other, mostly such as make sense in the present state."""

    def __init__(self, choose: Chooser, pair: Pair) -> None:
        self.choose = choose
        self.pair = pair
        self.lends = False
        self.kinds: list[tuple[int, int, dict[str, int], bool]] = []  # often the same again, so that lanes fill up
        self.weighted: list[Callable[[], None]] = []
        for command, weight in (
            (self.submit, 20),
            (self.end, 6),
            (self.turn, 6),
            (self.pass_time, 10),
            (self.complete, 3),
            (self.to_deadline, 5),
            (self.dispatch, 6),
            (self.pause, 4),
            (self.park, 3),
            (self.measure, 5),
            (self.resume, 4),
            (self.cancel, 3),
            (self.submit_many, 3),
            (self.take_up, 2),
            (self.open_scope, 3),
            (self.change_scope, 6),
            (self.dispose, 1),
            (self.add_periodic, 2),
            (self.toggle_periodic, 2),
            (self.set_units, 3 if pair.model.devices else 0),
        ):
            self.weighted += [command] * weight

    def step(self) -> None:
        self.choose.choice(self.weighted)()

    def submit(self) -> None:
        self.pair.submit(**self.make_submission())

    def submit_many(self) -> None:
        """A batch may name its own members, in any order."""
        batch = [self.make_submission() for _ in range(self.choose.integer(2, 4))]
        names = [each["name"] for each in batch if each["name"] is not None]
        for index, each in enumerate(batch):
            later = [other["name"] for other in batch[index + 1 :] if other["scope"] == each["scope"] and other["name"]]
            if later and len(set(names)) == len(names) and self.choose.chance(40):
                each["after"] = [*each["after"], self.choose.choice(later)]
        self.pair.submit_many(batch)

    def take_up(self) -> None:
        """M13: tasks that another budget has accepted; this one may not have what they need."""
        kept = self.make_submission()
        name = self.choose.choice((*DEMANDS, *UNITS))
        kept["demand"] = kept["demand"] | {name: self.choose.integer(1, 6)}
        self.pair.submit_many([kept], kept=True)

    def make_submission(self) -> dict[str, Any]:
        choose, pair = self.choose, self.pair
        numbers = sorted(pair.tasks)
        dependencies: dict[str, list[int | str]] = {"after": [], "after_ended": []}
        for field, percent in (("after", 25), ("after_ended", 10)):
            if numbers and choose.chance(percent):
                recent = numbers[-12:]
                dependencies[field] = [self.name_or_number(choose.choice(recent)) for _ in range(choose.integer(1, 2))]
        if not self.kinds or choose.chance(90 if self.pair.model.hard.get("cpu") == WIDE else 30):
            kind = (self.some_scope(), choose.choice(PRIORITIES), self.make_demand(), not choose.chance(15))
            self.kinds.append(kind)
        scope, priority, demand, slot = choose.choice(self.kinds[-4:])
        return {
            "scope": scope,
            "name": None if choose.chance(25) else choose.choice(NAMES),
            "priority": priority,
            "demand": demand,
            "policy": make_policy(choose, 25) if choose.chance(50) else None,
            "slot": slot,
            **dependencies,
        }

    def make_demand(self) -> dict[str, int]:
        choose = self.choose
        limits = self.pair.model.hard | self.pair.model.soft
        wanted = [name for name in limits if choose.chance(50)]
        if choose.chance(2):
            wanted.append(choose.choice(DEMANDS))
        above = {
            name: choose.choice((0, 1, 2)) if name in self.pair.model.soft else choose.chance(5) for name in wanted
        }
        demand = {name: choose.integer(0, limits.get(name, 1) + above[name]) for name in wanted}
        for kind, units in self.pair.model.devices.items():
            if choose.chance(70):
                if choose.chance(50):
                    demand[kind] = choose.integer(0, len(units))
                if kind == "gpu" and choose.chance(70):
                    demand["vram"] = choose.integer(0, max(units.values(), default=0) + choose.chance(5))
        return demand

    def name_or_number(self, number: int) -> int | str:
        task = self.pair.model_task(number)
        if task.name is None or not self.choose.chance(30):
            return number
        return f"{task.scope.key}/{task.name}"

    def end(self) -> None:
        active = self.pair.model.active()
        if active:
            self.end_body(self.choose.choice(active).number)

    def turn(self) -> None:
        """T5: a body ends, and the next one starts."""
        self.end()
        self.pair.dispatch()

    def end_body(self, number: int) -> None:
        choose = self.choose
        if choose.chance(30):
            cause = choose.choice(("exception", "exit_code", "worker_lost"))
            self.pair.on_task("ended", number, "error", cause, choose.chance(80))
        else:
            self.pair.on_task("ended", number, "success", None, True)

    def measure(self) -> None:
        self.on_some_task("measured", lambda task: task.active, self.choose.integer(0, 8))

    def block(self) -> None:
        """V1: a body waits for another task, or goes on."""
        active, living = (
            self.pair.model.active(),
            [task for task in self.pair.model.tasks if task.pending or task.active],
        )
        waiting = [task for task in active if task.blocked_on is not None]
        if waiting and self.choose.chance(50):
            self.pair.blocked(self.choose.choice(waiting).number, None)
        elif active:
            self.pair.blocked(self.choose.choice(active).number, self.choose.choice(living).number)

    def pass_time(self) -> None:
        """A little, or so long that timers are late."""
        steps_ns = self.choose.choice((MS_NS, 2 * MS_NS, MS_NS // 2, 5 * MS_NS, 1, 17 * MS_NS, 0))
        self.pair.pass_time(self.pair.now + steps_ns)
        self.pair.fire()

    def complete(self) -> None:
        """C0: time passes and bodies end before the timers fire."""
        self.pair.pass_time(self.pair.now + self.choose.choice((1, 2, 3)) * MS_NS)
        for task in self.pair.model.active():
            if self.choose.chance(50):
                self.end_body(task.number)
        self.pair.fire()

    def to_deadline(self) -> None:
        self.pair.pass_time(self.pair.now)
        deadline = self.pair.kernel.next_deadline()
        if deadline is not None:
            self.pair.pass_time(max(deadline, self.pair.now))
            self.pair.fire()

    def dispatch(self) -> None:
        self.pair.dispatch()

    def pause(self) -> None:
        self.on_some_task("pause", lambda task: task.state in {"QUEUED", "READY", "RUNNING"})

    def resume(self) -> None:
        self.on_some_task("resume", lambda task: task.state == "PAUSED" or task.pause_timer is not None)

    def stop(self) -> None:
        """M15: what was stopped often goes on again, and is often paused by the verb as well."""
        is_stopped = self.choose.chance(60)
        self.on_some_task("stopped", lambda task: task.is_stopped != is_stopped, is_stopped)

    def cancel(self) -> None:
        cause = ("loop_closed",) if self.choose.chance(20) else ()
        self.on_some_task("cancel", lambda task: task.state != "DISPOSED", *cause)

    def park(self) -> None:
        self.on_some_task("parked", lambda task: task.pause_timer is not None, any_task=False)

    def on_some_task(self, verb: str, sensible: Callable[[Any], bool], *rest: int | str, any_task: bool = True) -> None:
        """Seldom any task at all, though never an old Ref."""
        latest = [task for task in self.pair.model.tasks if task.retried_as is None]
        fitting = [task for task in latest if sensible(task)]
        candidates = latest if any_task and self.choose.chance(10) else fitting
        if candidates:
            self.pair.on_task(verb, self.choose.choice(candidates).number, *rest)

    def some_scope(self) -> int:
        """Mostly a living one."""
        scopes = self.pair.scopes
        living = [index for index, (_, scope) in enumerate(scopes) if scope.state in {"ATTACHED", "RUNNING"}]
        return (
            self.choose.choice(living)
            if living and not self.choose.chance(5)
            else self.choose.integer(0, len(scopes) - 1)
        )

    def open_scope(self) -> None:
        choose = self.choose
        policy = make_policy(choose, 20) if choose.chance(30) else None
        parent = self.some_scope() if choose.chance(70) else 0
        limits = make_limits(choose) | ({"on_error": "abort"} if choose.chance(25) else {})
        if self.lends:
            add_lending(choose, limits)
        budget = self.make_budget() if choose.chance(25) else None
        self.pair.open_scope(choose.choice(SCOPE_KEYS), parent, limits, policy, budget, mount=not choose.chance(10))

    def make_budget(self) -> dict[str, Any]:
        """M4: some of what the authority has."""
        choose, plain = self.choose, self.pair.model
        hard = {name: choose.integer(0, 4) for name in (*plain.hard, *plain.soft) if choose.chance(70)}
        devices = {
            kind: {name: size for name, size in units.items() if choose.chance(60)}
            for kind, units in plain.devices.items()
            if choose.chance(60)
        }
        return {"hard": hard, "devices": {kind: units for kind, units in devices.items() if units}}

    def change_scope(self) -> None:
        """The root is the authority's own; nobody suspends it."""
        if len(self.pair.scopes) > 1:
            verb = self.choose.choice(("suspend", "resume_scope", "resume_scope", "mount"))
            fitting = {"suspend": "RUNNING", "resume_scope": "SUSPENDED", "mount": "INIT"}[verb]
            states = [scope.state for _, scope in self.pair.scopes]
            indexes = [index for index, state in enumerate(states) if index and state == fitting]
            if not indexes or self.choose.chance(5):
                indexes = list(range(1, len(states)))
            self.pair.on_scope(verb, self.choose.choice(indexes))

    def dispose(self) -> None:
        if len(self.pair.scopes) > 1:
            self.pair.on_scope("dispose", self.choose.integer(1, len(self.pair.scopes) - 1))

    def add_periodic(self) -> None:
        choose = self.choose
        if len(self.pair.periodics) < 4:
            self.pair.add_periodic(
                self.some_scope(),
                self.make_demand(),
                make_policy(choose, 15) if choose.chance(50) else None,
                interval_ns=choose.choice((2, 1, 3, 5)) * MS_NS,
                name=choose.choice(("tick", "tock", "beat")),
                overlap=choose.choice(("skip", "queue", "parallel")),
                max_parallel=choose.integer(1, 3),
                jitter=choose.choice((0.0, 0.25)),
                enabled=not choose.chance(15),
                immediately=choose.chance(20),
                priority=choose.choice(PRIORITIES),
                slot=choose.chance(40),
                disable_after=choose.choice((None, 1, 2)),
            )

    def set_units(self) -> None:
        """One dies, one comes, one has another size: seldom of a kind that there is not."""
        choose, devices = self.choose, self.pair.model.devices
        kind = choose.choice(tuple(UNITS) if choose.chance(5) else tuple(devices))
        units = dict(devices.get(kind, {}))
        name = choose.choice(UNITS[kind])
        if name in units and choose.chance(60):
            del units[name]
        else:
            units[name] = choose.integer(0, 6) if kind == "gpu" else 0
        self.pair.set_units(kind, units)

    def toggle_periodic(self) -> None:
        if self.pair.periodics:
            index = self.choose.integer(0, len(self.pair.periodics) - 1)
            self.pair.set_periodic_enabled(index, self.choose.chance(50), self.choose.chance(30))
