"""Which classes are records of one call's money.

A *record* is a class of gateway/ that holds fields: a msgspec Struct, a dataclass, a NamedTuple or a TypedDict, or a
plain class whose `__init__` stores every parameter as a public attribute of the same name. Wire types (a module called
`schemas` on its path) and settings (`settings`, `config`) are none.

It holds *money* when a field's name has one of MONEY_WORDS in it and the field is a number or a record, or when the
field's type is a record that holds money. Text (an amount as it is shown) and switches do not count, nor do price
lists, whose fields are called by what they are for.

It is *of one call* when a field names the request (REQUEST_NAMES); when a record that is of one call has a field of its
type; or when one function takes or returns it together with a record that has a field naming the request, and it has no
field that is a list, a set or a mapping (with one it adds up several calls). Balances of accounts and spending of keys
are left out by this.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from benchmarks.structure.classes import Classes, ClassInfo, Function
from benchmarks.structure.sources import outline

MONEY_WORDS = {"amount", "balance", "bill", "charge", "charged", "cost", "hold", "usage", "worst"}
REQUEST_NAMES = {"request", "request_id", "rid"}
RECORD_BASES = {"Struct", "NamedTuple", "TypedDict"}
NOT_MONEY_TYPES = {"str", "bool", "bytes"}
ELSEWHERE = {"schemas", "settings", "config"}
COLLECTIONS = {"dict", "list", "set", "Mapping", "MutableMapping", "Sequence"}


class MoneyRecords:
    """Applies the definition to a tree."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._records = {key: info for key, info in classes.all.items() if self._is_record(info)}
        self._types = {
            key: {name: list(self._named(info, annotation)) for name, annotation in fields(info).items()}
            for key, info in self._records.items()
        }

    def find(self) -> list[ClassInfo]:
        """The records of one call's money, by name."""
        money = self._with_money()
        naming = {key for key in money if REQUEST_NAMES & self._types[key].keys()}
        found = naming | {key for key in self._beside(naming) & money if not _holds_several(self._records[key])}
        while more := {key for own in found for keys in self._types[own].values() for key in keys} & money - found:
            found |= more
        return sorted((self._records[key] for key in found), key=lambda info: info.name)

    def on_path(self, ran: Collection[str]) -> list[ClassInfo]:
        """Those of `find` that a function of `ran` names, or whose own methods ran: "file: qualified name"."""
        sources, named = self._classes.sources, set[tuple[str, str]]()
        last = {(file, name.rpartition(".")[2]) for file, _, name in (one.partition(": ") for one in ran)}
        owners = {(file, name.partition(".")[0]) for file, _, name in (one.partition(": ") for one in ran)}
        for module in sources.modules.values():
            shown = sources.shown(module)
            for node in outline(module.tree):
                if isinstance(node, Function) and (shown, node.name) in last:
                    named |= {
                        sources.find(module.name, name.id) for name in ast.walk(node) if isinstance(name, ast.Name)
                    }
        return [info for info in self.find() if info.key in named or (sources.shown(info.module), info.name) in owners]

    def _is_record(self, info: ClassInfo) -> bool:
        if not info.module.engine or ELSEWHERE.intersection(info.module.name.split(".")):
            return False
        decorators = {ast.unparse(node).partition("(")[0].rpartition(".")[2] for node in info.node.decorator_list}
        return bool(self._classes.outer_bases(info) & RECORD_BASES) or "dataclass" in decorators or _stores_all(info)

    def _with_money(self) -> set[tuple[str, str]]:
        """Records that hold money, directly or in a record inside."""
        found = {key for key, info in self._records.items() if any(_is_money(*item) for item in fields(info).items())}
        found |= {key for key in self._records if any(self._money_inside(key, name) for name in self._types[key])}
        while more := {
            key
            for key, types in self._types.items()
            if key not in found and any(inner in found for keys in types.values() for inner in keys)
        }:
            found |= more
        return found

    def _money_inside(self, key: tuple[str, str], field: str) -> bool:
        return bool(_words(field) & MONEY_WORDS and self._types[key][field])

    def _beside(self, naming: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Records that stand in a function's signature beside one that names the request."""
        found: set[tuple[str, str]] = set()
        for module in self._classes.sources.modules.values():
            for node in outline(module.tree):
                if module.engine and isinstance(node, Function):
                    signature = {
                        key for annotation in _annotations(node) for key in self._resolved(module.name, annotation)
                    }
                    if signature & naming:
                        found |= signature
        return found

    def _named(self, info: ClassInfo, annotation: ast.expr | None) -> Iterator[tuple[str, str]]:
        if annotation is not None:
            yield from self._resolved(info.module.name, annotation)

    def _resolved(self, module: str, annotation: ast.expr) -> Iterator[tuple[str, str]]:
        """The records that an annotation names."""
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name | ast.Attribute):
                key = self._classes.sources.find(module, ast.unparse(node))
                if key in self._records:
                    yield key
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from self._quoted(module, node.value)

    def _quoted(self, module: str, text: str) -> Iterator[tuple[str, str]]:
        try:
            inner = ast.parse(text, mode="eval").body
        except SyntaxError:
            return
        yield from self._resolved(module, inner)


def fields(info: ClassInfo) -> dict[str, ast.expr | None]:
    """Public fields with their annotations: those of the class body, else the parameters that `__init__` stores."""
    declared: dict[str, ast.expr | None] = {
        node.target.id: node.annotation
        for node in info.node.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    if declared or (init := _init(info)) is None:
        return declared
    return {argument.arg: argument.annotation for argument in _parameters(init)}


def _is_money(name: str, annotation: ast.expr | None) -> bool:
    """Whether a field is a number of money by its name."""
    if not _words(name) & MONEY_WORDS or annotation is None:
        return False
    return not NOT_MONEY_TYPES.intersection(node.id for node in ast.walk(annotation) if isinstance(node, ast.Name))


def _holds_several(info: ClassInfo) -> bool:
    names = {
        node.id
        for annotation in fields(info).values()
        if annotation is not None
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name)
    }
    return bool(names & COLLECTIONS)


def _words(name: str) -> set[str]:
    return set(name.split("_"))


def _stores_all(info: ClassInfo) -> bool:
    init = _init(info)
    if init is None or not (names := {argument.arg for argument in _parameters(init)}):
        return False
    stored = {
        target.attr
        for node in ast.walk(init)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    }
    return names <= stored


def _init(info: ClassInfo) -> Function | None:
    return next((function for function in info.functions if function.name == "__init__"), None)


def _parameters(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs][1:]


def _annotations(function: Function) -> Iterator[ast.expr]:
    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    yield from (argument.annotation for argument in every if argument.annotation is not None)
    if function.returns is not None:
        yield function.returns
