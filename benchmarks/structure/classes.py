"""The classes of a tree: what they inherit from project classes, and which of them are handlers."""

from __future__ import annotations

import ast

from msgspec import Struct

from benchmarks.structure.sources import Module, Sources, outline

# A handler is a class that Tornado calls with a request: it has one of these among its ancestors.
HANDLER_ROOTS = {"HTTPMessageDelegate", "RequestHandler"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class ClassInfo(Struct, frozen=True):
    """One class statement."""

    name: str
    module: Module
    node: ast.ClassDef
    bases: tuple[tuple[str, str], ...]  # (module, name)

    @property
    def key(self) -> tuple[str, str]:
        """What it is found by."""
        return self.module.name, self.name

    @property
    def functions(self) -> list[Function]:
        """Functions in its body, properties among them."""
        return [node for node in self.node.body if isinstance(node, Function)]


class Classes:
    """Every class statement at the top of a module or inside another class, by module and name."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.all: dict[tuple[str, str], ClassInfo] = {}
        for module in sources.modules.values():
            for node in outline(module.tree):
                if isinstance(node, ast.ClassDef):
                    bases = tuple(sources.find(module.name, dotted) for base in node.bases if (dotted := _dotted(base)))
                    self.all[module.name, node.name] = ClassInfo(node.name, module, node, bases)

    def ancestors(self, info: ClassInfo) -> list[ClassInfo]:
        """The project's classes above a class."""
        found: dict[tuple[str, str], ClassInfo] = {}
        for key in info.bases:
            if (base := self.all.get(key)) is not None and base is not info:
                found[key] = base
                found |= {above.key: above for above in self.ancestors(base)}
        return list(found.values())

    def depth(self, info: ClassInfo) -> int:
        """Steps from a class to its furthest project ancestor; 0 for a class that has none."""
        bases = [base for key in info.bases if (base := self.all.get(key)) is not None and base is not info]
        return max((1 + self.depth(base) for base in bases), default=0)

    def outer_bases(self, info: ClassInfo) -> set[str]:
        """Names of the classes of other projects that a class has, directly or through its ancestors."""
        every = [info, *self.ancestors(info)]
        return {key[1].rpartition(".")[2] for one in every for key in one.bases if key not in self.all}

    def methods(self, info: ClassInfo) -> set[str]:
        """Names of the methods and properties of a class, with those of its project ancestors."""
        return {function.name for one in (info, *self.ancestors(info)) for function in one.functions}

    def handlers(self) -> list[ClassInfo]:
        """The handlers of gateway/, those with the most methods first."""
        found = [info for info in self.all.values() if info.module.engine and self.outer_bases(info) & HANDLER_ROOTS]
        return sorted(found, key=lambda info: (-len(self.methods(info)), info.name))

    def deepest(self) -> ClassInfo | None:
        """The class of gateway/ with the longest line of project ancestors."""
        engine = [info for info in self.all.values() if info.module.engine]
        return max(engine, key=lambda info: (self.depth(info), len(self.methods(info))), default=None)


def _dotted(node: ast.expr) -> str:
    """`a.b` of an expression that names a class, without its type arguments; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""
