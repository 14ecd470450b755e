"""Scopes: their life, and what ends with them."""

from __future__ import annotations

from .dispatch import Dispatch
from .records import (
    Budget,
    Illegal,
    Limits,
    Policy,
    Scope,
)


class Scopes(Dispatch):
    """O1 to O4, O7."""

    def open_scope(
        self,
        now: int,
        key: str,
        parent: Scope | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
        mount: bool = True,
        budget: Budget | None = None,
    ) -> Scope:
        """O3: one living scope for each key. M4: it may have a budget of its own."""
        self.advance(now)
        parent = parent or self.root
        if any(scope.key == key for scope in self.scopes):
            raise Illegal(f"a living scope has the key {key}")
        if parent.state in {"DISPOSING", "DISPOSED"}:
            raise Illegal(f"{parent.key} is closed")
        scope = Scope(key, parent, limits or Limits(), policy or parent.policy, budget)
        self.scopes.append(scope)
        self.emit("SCOPE_CREATED", scope, parent=scope.parent.key or None, own_budget=budget is not None or None)
        if mount:
            self.mount(now, scope)
        return scope

    def mount(self, now: int, scope: Scope) -> None:
        self.step(now, scope, {"INIT"}, "ATTACHED", "SCOPE_ATTACHED")

    def suspend(self, now: int, scope: Scope) -> None:
        """O1: only from RUNNING. O2: gates the child scopes too; their own state stays."""
        self.step(now, scope, {"RUNNING"}, "SUSPENDED", "SCOPE_SUSPENDED")

    def resume_scope(self, now: int, scope: Scope) -> None:
        self.step(now, scope, {"SUSPENDED"}, "RUNNING", "SCOPE_RESUMED")

    def step(self, now: int, scope: Scope, allowed_from: set[str], to: str, kind: str) -> None:
        """O1: one step of the scope's state machine."""
        self.advance(now)
        if scope.state not in allowed_from:
            raise Illegal(f"{scope.key} is {scope.state}")
        scope.state = to
        self.emit(kind, scope)

    def dispose(self, now: int, scope: Scope) -> None:
        """O4, O7: children before parents; running tasks in start order, then pending ones in submission order."""
        self.advance(now)
        closing = [inner for inner in self.family(scope) if inner.state not in {"DISPOSING", "DISPOSED"}]
        for inner in closing:
            inner.state = "DISPOSING"
            self.emit("SCOPE_DISPOSING", inner)
        touched = []
        for inner in deepest_first(closing):
            self.stop_periodics(inner)
            for task in self.active():
                if task.scope is inner:
                    self.ask_abort(task, "aborted", "scope_disposed")
                    touched.append(task)
            for task in self.pending(self.root):
                if task.scope is inner:
                    self.finish(task, "aborted", "scope_disposed")
                    touched.append(task)
        self.aftermath(touched)

    def children(self, scope: Scope) -> list[Scope]:
        return [inner for inner in self.scopes if inner.parent is scope]

    def family(self, scope: Scope) -> list[Scope]:
        """The scope, then its descendants, depth first, children in creation order."""
        return [scope, *(inner for child in self.children(scope) for inner in self.family(child))]

    def close_scopes(self) -> None:
        """O4: DISPOSED as soon as nothing of it runs and all its children are DISPOSED; then perhaps its parent."""
        for scope in deepest_first(self.family(self.root)):
            for closing in scope.path():
                bodies = [task for task in self.active() if task.scope is closing]
                if closing.state == "DISPOSING" and not bodies and not self.children(closing):
                    closing.state = "DISPOSED"
                    self.scopes.remove(closing)
                    self.emit("SCOPE_DISPOSED", closing)

    def stop_periodics(self, scope: Scope) -> None:
        raise NotImplementedError


def deepest_first(scopes: list[Scope]) -> list[Scope]:
    """O7: children before parents; the rest in creation order."""
    return sorted(scopes, key=lambda scope: -len(scope.path()))
