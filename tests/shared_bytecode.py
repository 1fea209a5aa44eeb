"""The processes of a parallel run compile the tests together, each another part first.

Every process imports all tests. A run that finds no bytecode would compile each module in all processes at the same
time, and pytest also rewrites its assertions: that would take a third of the processors' time. Here each process begins
to collect at another folder, finds the bytecode of the folders that the others began with, and puts its tests into the
common order at the end. Where PYTHONDONTWRITEBYTECODE is set, the bytecode is in a folder that the run removes.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

TESTS = Path(__file__).parent
FOLDER = "bytecode_folder"  # the key in the input of a process


def share_bytecode(config: pytest.Config) -> None:
    """Let this process, the controller or a worker of pytest-xdist, take part; others collect as always."""
    if (given := getattr(config, "workerinput", None)) is not None:
        config.pluginmanager.register(Part(int(given["workerid"].removeprefix("gw")), given["workercount"]))
        if FOLDER in given:
            sys.pycache_prefix, sys.dont_write_bytecode = given[FOLDER], False
    elif config.getoption("numprocesses", None) and sys.dont_write_bytecode:
        folder = TemporaryDirectory(prefix="bytecode-of-tests-")
        config.add_cleanup(folder.cleanup)
        config.pluginmanager.register(OwnFolder(folder.name))


class OwnFolder:
    """Tells the workers where their bytecode is, as a plugin of the controller."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[FOLDER] = self._folder


class Part:
    """Collects the folders of the tests from another start in each worker, as a plugin of the worker."""

    def __init__(self, number: int, workers: int) -> None:
        self._share = number % workers / workers  # a worker that replaces a lost one has a higher number
        self._order: dict[Path, int] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Begin where this worker's part of the sources begins."""
        report = yield
        if collector.path == TESTS and isinstance(collector, pytest.Directory) and report.passed:
            nodes = report.result
            self._order = {node.path: place for place, node in enumerate(nodes)}
            start = start_of([_size(node.path) for node in nodes], self._share)
            report.result = [*nodes[start:], *nodes[:start]]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Restore the order that all workers have in common."""
        items.sort(key=lambda item: self._order.get(_top(item.path), -1))


def start_of(sizes: list[int], share: float) -> int:
    """The index of the first element that begins at this share of the sum or after it; 0 if there is none."""
    before = [sum(sizes[:place]) for place in range(len(sizes))]
    return next((place for place, size in enumerate(before) if size >= share * sum(sizes)), 0)


def _size(path: Path) -> int:
    """Bytes of the sources of a module or a folder."""
    return sum(file.stat().st_size for file in path.rglob("*.py")) if path.is_dir() else path.stat().st_size


def _top(path: Path) -> Path:
    """The folder or module directly in the folder of the tests."""
    return TESTS / path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else path
