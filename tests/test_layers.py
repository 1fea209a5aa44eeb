"""Imports point one way: what may know whom, checked over the syntax trees of the code itself."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import gateway
from benchmarks.checkout import Checkout
from benchmarks.structure.circles import circles
from benchmarks.structure.classes import Classes
from benchmarks.structure.sources import Sources

ROOT = Path(__file__).parent.parent

# From the top down. A package may import what stands below it, never what stands beside or above it; that holds for
# imports that only type checkers see, too.
RANKS = [
    {"__main__"},
    {"cli"},
    {"runtime", "testing", "plugin_template"},
    {"admin_api", "console"},
    {"api"},
    {"backup"},
    {"services"},
    {"imports", "setup"},
    {"attention", "manual", "people", "reports"},
    {"admin"},
    {"notifications"},
    {"inference"},
    {"hooks"},
    {"encoders", "routing"},
    {"catalog", "discovery"},
    {"history", "batches"},
    {"accounts"},
    {"ledger"},
    {"metrics"},
    {"telemetry"},
    {"plugins", "uploads", "files"},
    {"billing"},
    {"web"},
    {"store", "database", "http_server", "http_client"},
    {"config"},
    {"schemas"},
    {"sse"},
    {"errors", "log", "ids", "amounts", "email_address", "version", "whole_numbers"},
    {"log_form", "log_output"},
    {"redaction"},
]
RANK = {package: rank for rank, packages in enumerate(reversed(RANKS)) for package in packages}
# What a plugin may import beside the names of `gateway` itself.
PUBLIC = {
    "errors",
    "plugins.engine_frames",
    "plugins.engine_processes",
    "plugins.upstream_errors",
    "schemas",
    "sse",
    "testing",
}


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "build" not in path.relative_to(ROOT).parts)


@cache
def imported(path: Path, *, typing_too: bool = True) -> list[tuple[str, str]]:
    """Every import of a file, inside functions too, as (module, name)."""
    found: list[tuple[str, str]] = []
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found += ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += ((str(node.module), alias.name) for alias in node.names)
        elif typing_too or not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            pending += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
    return found


def part_of(module: str, name: str) -> str:
    """The part of the gateway an import leads to; empty for its front door."""
    steps = [*module.split("."), name]
    home = ROOT / "gateway" / name
    return steps[1] if len(steps) > 2 or home.is_dir() or home.with_suffix(".py").exists() else ""


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_each_package_imports_only_packages_of_lower_rank() -> None:
    """The front door leads everywhere, and imports nothing before it is asked."""
    faults = []
    for path in sources("gateway"):
        own = path.relative_to(ROOT / "gateway").with_suffix("").parts[0]
        for module, name in imported(path) if own != "__init__" else ():
            if module.split(".")[0] == "gateway":
                part = part_of(module, name)
                if part != own and RANK[part] >= RANK[own]:
                    faults.append(f"{shown(path)} imports {module}.{name}")
    assert faults == []


def room_of(module: str) -> str:
    """The package of the second level that a module lies in, as `gateway.people.oidc`; "" for one of the first."""
    parts = module.split(".")
    return ".".join(parts[:3]) if (ROOT / Path(*parts[:3])).is_dir() and len(parts) > 2 else ""


def test_packages_inside_a_package_have_no_circles() -> None:
    """Neither among themselves nor with the modules beside them; imports for type checkers count."""
    arrows: dict[str, set[str]] = {}
    for path in sources("gateway"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for found, name in imported(path):
            target = f"{found}.{name}" if is_module(f"{found}.{name}") else found
            if target.split(".")[:2] == module.split(".")[:2]:
                ends = room_of(module) or module, room_of(target) or target
                if ends[0] != ends[1]:
                    arrows.setdefault(ends[0], set()).add(ends[1])
    rooms = {name for name in [*arrows, *(one for ends in arrows.values() for one in ends)] if room_of(f"{name}.x")}
    assert {"gateway.people.oidc", "gateway.admin_api.resources", "gateway.console.pages"} <= rooms
    assert [name for name in sorted(rooms) if name in reached(arrows, name)] == []


def is_module(name: str) -> bool:
    place = ROOT / Path(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


def reached(arrows: dict[str, set[str]], start: str) -> set[str]:
    """What can be reached from a place, without it unless there is a circle."""
    found, pending = set[str](), [start]
    while pending:
        for one in arrows.get(pending.pop(), ()):
            if one not in found:
                found.add(one)
                pending.append(one)
    return found


# `no_collector`: to look through the nodes of so many trees takes twice as long as to parse them.
@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
def test_files_have_no_import_circles() -> None:
    """Imports for type checkers count."""
    tree = Sources(Checkout(ROOT))
    assert len(tree.modules) > 400
    assert circles(tree) == []


def test_engine_never_imports_a_provider() -> None:
    for path in sources("gateway"):
        if "providers" not in path.read_text(encoding="utf-8"):
            continue
        for module, _ in imported(path):
            assert module.split(".")[0] not in {"gateway_providers", "providers"}, path


def test_hook_specifications_import_no_gateway_module() -> None:
    found = imported(ROOT / "gateway" / "plugins" / "hookspecs.py", typing_too=False)
    assert {module for module, _ in found} == {"__future__", "pluggy", "typing"}


def test_providers_and_plugins_use_public_names_only() -> None:
    faults = []
    for path in sources("providers", "plugins"):
        for module, name in imported(path):
            if module.split(".")[0] != "gateway":
                continue
            if part := part_of(module, name):
                allowed = part in PUBLIC or module.removeprefix("gateway.") in PUBLIC
                allowed = allowed and not name.startswith("_")
            else:
                allowed = name in gateway.__all__
            if not allowed:
                faults.append(f"{shown(path)} imports {module}.{name}")
    assert faults == []


def test_provider_package_is_imported_only_as_gateway_providers() -> None:
    """A top-level `providers` would collide with anybody's; installed, it is `gateway_providers`."""
    for path in sources("providers"):
        relative = path.relative_to(ROOT / "providers").with_suffix("").parts
        importlib.import_module(".".join(("gateway_providers", *(part for part in relative if part != "__init__"))))
    assert "providers" not in sys.modules
    assert not any(name.startswith("providers.") for name in sys.modules)


@pytest.mark.slow
def test_package_import_loads_no_engine_module() -> None:
    """`import gateway` is on the way of every command: it must not bring Tornado or aiohttp along."""
    code = "import sys, gateway; print(sorted({'aiohttp', 'tornado', 'redis', 'msgspec'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.slow
def test_worker_without_a_proxy_never_loads_aiohttp() -> None:
    code = "import sys, gateway.runtime.worker; print('aiohttp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


FLAT = 40  # modules side by side in a package
LARGEST = 400  # lines of a file


def test_packages_have_few_modules_side_by_side_and_files_few_lines() -> None:
    beside: dict[Path, int] = {}
    for path in sources("gateway", "providers"):
        if path.name != "__init__.py":
            beside[path.parent] = beside.get(path.parent, 0) + 1
    assert [f"{shown(folder)}: {count}" for folder, count in beside.items() if count > FLAT] == []
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in sources("gateway", "providers")}
    assert [f"{shown(path)}: {count}" for path, count in lines.items() if count > LARGEST] == []


METHODS = 20  # of a handler, with those that it inherits from classes of the project


@pytest.mark.usefixtures("no_collector")
def test_handlers_have_few_methods() -> None:
    classes = Classes(Sources(Checkout(ROOT)))
    counted = {info.name: len(classes.methods(info)) for info in classes.handlers()}
    assert len(counted) >= 10
    assert {name: count for name, count in counted.items() if count > METHODS} == {}


WIDEST = 160  # characters of a line of a template


def test_lines_of_templates_are_short() -> None:
    templates = sorted((ROOT / "gateway").rglob("*.html"))
    assert len(templates) >= 50
    wide = [
        f"{shown(path)}:{number}"
        for path in templates
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDEST
    ]
    assert wide == []
