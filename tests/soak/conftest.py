"""The soak's fixtures: the yard of the process tests, and how long it takes."""

from __future__ import annotations

from tests.processes.conftest import yard

__all__ = ["yard"]
