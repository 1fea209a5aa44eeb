"""Figures of a tree's files: how many, how flat, how often a setting is written, and what documentation holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from benchmarks.checkout import Checkout
from benchmarks.structure.classes import Classes
from benchmarks.structure.sources import Sources

KEY_SETTING = re.compile(rb"\bmax[_-]cost\b")  # of a key; an option is written with a hyphen
TEST_NAME = re.compile(rb"tests/[\w/]+\.py(?:::\w+)?|\btest_\w+")
GENERATED = {"claims.md"}  # from the marks of the tests
TEXTS = {".py", ".html", ".lua", ".js", ".css"}


class FlatPackage(Struct, frozen=True):
    """A package and the modules that lie directly in it, `__init__` not among them."""

    name: str
    modules: int


def flattest(sources: Sources) -> FlatPackage:
    """The package with the most modules directly in it."""
    counted = Counter(
        module.path.parent for module in sources.modules.values() if module.engine and module.path.name != "__init__.py"
    )
    folder, modules = max(counted.items(), key=lambda item: (item[1], str(item[0])), default=(Path(), 0))
    return FlatPackage(folder.name, modules)


def repeated_names(classes: Classes) -> list[str]:
    """Names of classes at the top of a module that occur in two modules or more of gateway/."""
    counted = Counter(
        info.name for info in classes.all.values() if info.module.engine and info.node in info.module.tree.body
    )
    return sorted(name for name, times in counted.items() if times > 1)


def files_of_a_key_setting(checkout: Checkout) -> list[str]:
    """The files of gateway/ in which the key setting `max_cost` is written."""
    found = (path for path in checkout.folders()["gateway"].rglob("*") if path.suffix in TEXTS)
    return sorted(path.relative_to(checkout.root).as_posix() for path in found if KEY_SETTING.search(path.read_bytes()))


def documentation(checkout: Checkout) -> tuple[int, int]:
    """Bytes of the README and of docs/, and those of them that are names of tests."""
    texts = list(_pages(checkout.root))
    return sum(map(len, texts)), sum(len(name) for text in texts for name in TEST_NAME.findall(text))


def _pages(root: Path) -> Iterator[bytes]:
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if path.name not in GENERATED and path.exists():
            yield path.read_bytes()
