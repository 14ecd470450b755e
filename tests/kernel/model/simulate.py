"""Run a workload through the model in virtual time: what `Simulation` must answer, by C0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import Aging, Limits, Model, Policy, Refused, Retry, Scope, Strict, Task

MS_NS = 1_000_000


def simulate(workload: dict[str, Any]) -> dict[str, Any]:
    """Return `{"events": [[ms, kind, id], ...], "final": {id: ...}}`."""
    return Run(workload).run()


@dataclass
class Body:
    """A simulated body: it knows how long it has to run, and obeys at once."""

    task: Task
    remaining_ns: int
    ends_at: int | None


class Run:
    """One simulation."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self.config = workload.get("config", {})
        self.model = build_model(self.config)
        self.to_submit = sorted(workload["tasks"], key=lambda spec: spec["at_ms"])
        self.ops = sorted(workload.get("ops", []), key=lambda op: op["at_ms"])
        self.scopes = {"": self.model.root}
        self.spec_of: dict[str, dict[str, Any]] = {}
        self.task_of: dict[str, Task] = {}
        self.bodies: list[Body] = []
        self.final: dict[str, str] = {}
        for key in (*self.config.get("scopes", {}), *(spec.get("scope") or "" for spec in workload["tasks"])):
            self.scope(key)

    def run(self) -> dict[str, Any]:
        while (now := self.next_instant()) is not None:
            self.instant(now)
        for name, task in self.task_of.items():
            outcome = task.latest().outcome
            self.final[name] = "pending" if outcome is None else outcome
        devices = {task.id: {kind: list(units) for kind, units in task.devices.items()} for task in self.model.started}
        return {"events": self.listed_events(), "final": self.final, "devices": {k: v for k, v in devices.items() if v}}

    def next_instant(self) -> int | None:
        """A completion, a live timer, a submission or op of the file, or a `max_wait` expiry."""
        times = [body.ends_at for body in self.bodies if body.ends_at is not None]
        times += [item["at_ms"] * MS_NS for item in (*self.to_submit[:1], *self.ops[:1])]
        deadline = self.model.next_deadline()
        if deadline is not None:
            times.append(deadline)
        return min(times, default=None)

    def instant(self, now: int) -> None:
        """C0: completions in start order; timers; submissions in file order; ops in file order; dispatch."""
        model = self.model
        for body in [body for body in self.bodies if body.ends_at is not None and body.ends_at <= now]:
            self.bodies.remove(body)
            model.ended(now, body.task, self.outcome(body.task), "exception")
        self.obey(now)
        model.fire(now)
        self.obey(now)
        while self.to_submit and self.to_submit[0]["at_ms"] * MS_NS <= now:
            self.submit(now, self.to_submit.pop(0))
        while self.ops and self.ops[0]["at_ms"] * MS_NS <= now:
            self.operate(now, self.ops.pop(0))
            self.obey(now)
        for task in model.dispatch(now):
            duration_ns = self.spec_of[task.id]["duration_ms"] * MS_NS
            self.bodies.append(Body(task, duration_ns, now + duration_ns))

    def outcome(self, task: Task) -> str:
        """`fails: k` makes only the first k attempts fail; without it `error` fails always."""
        spec = self.spec_of[task.id]
        if spec.get("fails") is not None:
            return "error" if task.attempt <= spec["fails"] else "success"
        return spec.get("outcome", "success")

    def submit(self, now: int, spec: dict[str, Any]) -> None:
        """Ids are global: a second one is refused, and so is a dependency that was not accepted before."""
        name = spec["id"]
        scope = self.scopes[spec.get("scope") or ""]
        if name in self.task_of:
            self.model.advance(now)
            self.model.emit("TASK_REJECTED", scope, name=name, cause="duplicate")
            return
        try:
            task = self.model.submit(
                now,
                scope,
                name,
                spec.get("priority", 50),
                demand_of(spec),
                [self.task_of.get(other, other) for other in spec.get("after", [])],
                [self.task_of.get(other, other) for other in spec.get("after_ended", [])],
                self.policy_of(spec),
                spec.get("slot", True),
            )
        except Refused:
            self.final[name] = "rejected"
            return
        self.task_of[name] = task
        self.spec_of[name] = spec

    def policy_of(self, spec: dict[str, Any]) -> Policy:
        """T6: what the task leaves out comes from its scope, its scope's parents, or the authority."""
        levels = [spec]
        key = spec.get("scope")
        while key:
            levels.append(self.config.get("scopes", {}).get(key, {}))
            key = levels[-1].get("parent")
        levels.append(self.config)

        def setting(field: str) -> int | None:
            return next((level[field] for level in levels if field in level), None)

        timeout_ms, max_wait_ms, retries = setting("timeout_ms"), setting("max_wait_ms"), setting("retry")
        return Policy(
            timeout_ns=None if timeout_ms is None else timeout_ms * MS_NS,
            retry=Retry(retries, (setting("backoff_ms") or 0) * MS_NS) if retries else None,
            max_wait_ns=None if max_wait_ms is None else max_wait_ms * MS_NS,
        )

    def scope(self, key: str) -> Scope:
        """A scope that is not in the config is unlimited."""
        if key not in self.scopes:
            spec = self.config.get("scopes", {}).get(key, {})
            parent = self.scope(spec.get("parent") or "")
            self.scopes[key] = self.model.open_scope(0, key, parent, limits_of(spec, parent.limits))
        return self.scopes[key]

    def operate(self, now: int, op: dict[str, Any]) -> None:
        """An op that does not apply changes nothing."""
        if op["id"] not in self.task_of:
            return
        task = self.task_of[op["id"]].latest()
        if op["do"] == "cancel":
            self.model.cancel(now, task)
        elif op["do"] == "pause":
            self.model.pause(now, task)
        elif task.state == "PAUSED":
            self.model.resume(now, task)

    def obey(self, now: int) -> None:
        """A simulated body obeys at once: it ends, parks, or runs its remaining time."""
        requests, self.model.requests = self.model.requests, []
        for verb, task in requests:
            body = next((body for body in self.bodies if body.task is task), None)
            if body is None:
                continue  # it has ended at this very instant
            if verb == "abort":
                self.bodies.remove(body)
                self.model.ended(now, task, "success")
            elif verb == "pause":
                assert body.ends_at is not None
                body.remaining_ns = body.ends_at - now
                body.ends_at = None
                self.model.parked(now, task)
            else:
                body.ends_at = now + body.remaining_ns

    def listed_events(self) -> list[list[Any]]:
        """The five kinds of the file; an abort is listed when it is asked for, not when the body has ended."""
        listed: list[list[Any]] = []
        aborted = []
        for time, kind, _, number, name, details in self.model.events:
            if kind == "TASK_STARTED":
                word = "start"
            elif kind == "TASK_ABORT_ASKED":
                word = "finish" if details["cause"] == "run_timeout" else "cancel"
                aborted.append(number)
            elif kind in {"TASK_FINISHED", "TASK_CANCELLED"} and number not in aborted:
                word = "finish" if kind == "TASK_FINISHED" else "cancel"
            elif kind == "TASK_DROPPED":
                word = "drop"
            elif kind == "TASK_REJECTED":
                word = "reject"
            else:
                continue
            listed.append([time // MS_NS, word, name])
        return listed


def build_model(config: dict[str, Any]) -> Model:
    """The authority of the file; slots default to unbounded, the order to aging."""
    if config.get("order", "aging") == "strict":
        order: Strict | Aging = Strict(config.get("ties", "submission"))
    else:
        order = Aging(
            config.get("every_ms", 5000) * MS_NS,
            config.get("boost", 10),
            config.get("cap", 99),
            config.get("ties", "submission"),
        )
    hard = dict(config.get("resources") or {})
    soft = dict(config.get("soft") or {})
    for resource, limits in (("cpu", hard), ("ram", soft), ("vram", soft)):
        if config.get(resource) is not None:
            limits[resource] = config[resource]
    devices = {kind: dict.fromkeys(units, 0) for kind, units in config.get("devices", {}).items()}
    if "gpus" in config:
        devices["gpu"] = {str(number): size for number, size in enumerate(config["gpus"])}
    return Model(limits_of(config, Limits()), hard, soft, order, config.get("backfill", "greedy"), devices=devices)


def limits_of(spec: dict[str, Any], outer: Limits) -> Limits:
    """How a scope refuses comes from further out if it does not say; its numbers are its own."""
    return Limits(
        slots=spec.get("slots"),
        queue_limit=spec.get("queue_limit"),
        overflow=spec.get("overflow", outer.overflow),
        when_busy=spec.get("when_busy", outer.when_busy),
        max_spawn=spec.get("max_spawn"),
        on_error=spec.get("on_error", "continue"),
    )


def demand_of(spec: dict[str, Any]) -> dict[str, int]:
    plain = {name: spec.get(name, 0) for name in ("cpu", "ram", "vram", "gpu")}
    return plain | spec.get("resources", {}) | spec.get("devices", {})
