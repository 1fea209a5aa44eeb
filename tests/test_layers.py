"""Imports point one way: what may know whom, checked over the syntax trees of the code itself."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gateway
from benchmarks.checkout import Checkout
from benchmarks.structure.circles import circles
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
    {"admin"},
    {"notifications"},
    {"inference"},
    {"encoders", "routing"},
    {"catalog"},
    {"history"},
    {"accounts"},
    {"ledger"},
    {"metrics"},
    {"plugins", "uploads"},
    {"billing"},
    {"store", "database", "http_server", "http_client"},
    {"config"},
    {"schemas"},
    {"sse"},
    {"errors", "log", "ids", "amounts", "version"},
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


def imported(path: Path, *, typing_too: bool = False) -> Iterator[tuple[str, str]]:
    """Every import of a file, inside functions too, as (module, name); those for type checkers on demand."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif typing_too or not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            pending += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


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
        for module, name in imported(path, typing_too=True) if own != "__init__" else ():
            if module.split(".")[0] == "gateway":
                part = part_of(module, name)
                if part != own and RANK[part] >= RANK[own]:
                    faults.append(f"{shown(path)} imports {module}.{name}")
    assert faults == []


@pytest.mark.slow
def test_files_have_no_import_circles() -> None:
    """Imports for type checkers count."""
    tree = Sources(Checkout(ROOT))
    assert len(tree.modules) > 400
    assert circles(tree) == []


def test_engine_never_imports_a_provider() -> None:
    for path in sources("gateway"):
        if "providers" not in path.read_text(encoding="utf-8"):
            continue
        for module, _ in imported(path, typing_too=True):
            assert module.split(".")[0] not in {"gateway_providers", "providers"}, path


def test_hook_specifications_import_no_gateway_module() -> None:
    assert {module for module, _ in imported(ROOT / "gateway" / "plugins" / "hookspecs.py")} == {
        "__future__",
        "pluggy",
        "typing",
    }


def test_providers_and_plugins_use_public_names_only() -> None:
    faults = []
    for path in sources("providers", "plugins"):
        for module, name in imported(path, typing_too=True):
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
