"""Holds calls of a function of the database until a test lets them go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest


class Held:
    """Holds each call of a function of the database until `go` is set, for at most a minute."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = threading.Event()

    def put(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        """Hold the function of this name in the module."""
        own = getattr(module, name)

        def held(*args: Any, **rest: Any) -> Any:
            self.calls += 1
            self.go.wait(60.0)
            return own(*args, **rest)

        monkeypatch.setattr(module, name, held)


@pytest.fixture
def held() -> Iterator[Held]:
    """Goes on at the end of the test."""
    held = Held()
    yield held
    held.go.set()
