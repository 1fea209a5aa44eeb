"""A plan: what an import will do, step by step, before it does anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

Action = Literal["create", "change", "credit", "nothing"]


class Step(Struct, frozen=True):
    """One thing: the line of the file, what happens to what, and the new values as people read them."""

    line: int
    action: Action
    object: str  # `KIND:NAME`
    values: dict[str, Any] = {}


class Imported(Struct):
    """The document of the `gateway import` commands."""

    dry_run: bool
    create: int
    change: int
    credit: int
    nothing: int  # lines that are as the store or the database has them
    steps: list[Step]


class Plan:
    """The steps, and what carries each out."""

    def __init__(self) -> None:
        self._steps: list[tuple[Step, Callable[[], Awaitable[object]] | None]] = []

    def add(
        self,
        line: int,
        action: Action,
        object_: str,
        values: dict[str, Any] | None = None,
        apply: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Add a step."""
        self._steps.append((Step(line, action, object_, values or {}), apply))

    async def carry_out(self, *, dry_run: bool) -> Imported:
        """Do the steps in order, unless it is a dry run. After an interruption, the import can be repeated."""
        if not dry_run:
            for _, apply in self._steps:
                if apply is not None:
                    await apply()
        steps = [step for step, _ in self._steps]
        return Imported(
            dry_run,
            _count(steps, "create"),
            _count(steps, "change"),
            _count(steps, "credit"),
            _count(steps, "nothing"),
            [step for step in steps if step.action != "nothing"],
        )


def _count(steps: Iterable[Step], action: Action) -> int:
    return sum(step.action == action for step in steps)
