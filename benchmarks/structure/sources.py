"""The Python modules of a checkout, parsed, and what a name in one of them stands for."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from benchmarks.checkout import Checkout

SKIPPED = {"build", "__pycache__"}


class Module(Struct, frozen=True):
    """One file of Python."""

    name: str  # as it is imported
    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def engine(self) -> bool:
        """Whether it belongs to gateway/, not to providers/."""
        return self.name.partition(".")[0] == "gateway"


class Sources:
    """All modules of gateway/ and providers/."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.modules: dict[str, Module] = {}
        for package, folder in checkout.folders().items():
            for path in sorted(folder.rglob("*.py")):
                parts = (package, *path.relative_to(folder).with_suffix("").parts)
                if not SKIPPED.intersection(parts):
                    name = ".".join(parts).removesuffix(".__init__")
                    text = path.read_text(encoding="utf-8")
                    self.modules[name] = Module(name, path, text, ast.parse(text, filename=str(path)))
        self._bindings: dict[str, dict[str, tuple[str, str]]] = {}

    def shown(self, module: Module) -> str:
        """The file's path inside the checkout."""
        return module.path.relative_to(self.checkout.root).as_posix()

    def find(self, module: str, dotted: str) -> tuple[str, str]:
        """The module that defines what `dotted` means in `module`, and its name there.

        Re-exports are followed. A name from outside the project comes back with the outer module's name.
        """
        seen = set()
        while (module, dotted) not in seen:
            seen.add((module, dotted))
            head, _, rest = dotted.partition(".")
            bound = self._bound(module).get(head)
            if bound is None:
                return module, dotted
            module, name = bound
            dotted = ".".join(part for part in (name, rest) if part)
            if module not in self.modules:
                return module, dotted
            while not name and f"{module}.{dotted.partition('.')[0]}" in self.modules:  # `import gateway.sse`
                head, _, dotted = dotted.partition(".")
                module = f"{module}.{head}"
        return module, dotted

    def _bound(self, module: str) -> dict[str, tuple[str, str]]:
        """What the imports of a module bind: local name → (module, name in it; empty for the module itself)."""
        if module not in self.modules:
            return {}
        if module not in self._bindings:
            self._bindings[module] = {}
            for target, name, local in imports(self.modules[module]):
                inner = f"{target}.{name}"
                self._bindings[module][local] = (inner, "") if inner in self.modules else (target, name)
        return self._bindings[module]


def outline(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node of a tree but expressions, which hold no import, class or function, and are most of it."""
    pending: deque[ast.AST] = deque([tree])
    while pending:
        node = pending.popleft()
        yield node
        pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def imports(module: Module, *, typing: bool = True) -> Iterator[tuple[str, str, str]]:
    """Every import, inside functions too, as (module, name in it, local name).

    `typing`: those under TYPE_CHECKING too.
    """
    pending: list[ast.AST] = [module.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                target, local = (alias.name, alias.asname) if alias.asname else 2 * (alias.name.partition(".")[0],)
                yield target, "", local
                if not alias.asname and "." in alias.name:
                    yield alias.name, "", ""  # the module itself, which binds no name of its own
        elif isinstance(node, ast.ImportFrom):
            target = _source(module, node)
            for alias in node.names:
                yield target, alias.name, alias.asname or alias.name
        elif typing or not _for_type_checkers(node):
            pending += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def _source(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    steps = module.package.split(".")
    base = steps[: len(steps) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"
