"""docs/plugin-attributes.md, made from the code: `python -m tests.plugin_attributes` writes it again.

It has every public class of `gateway` and of `gateway.testing`, every class that is the type of one of their
attributes, and the errors that a provider raises. What an attribute means is the comment beside or above it, or the
docstring of a property.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

import gateway
import gateway.testing
from gateway import errors
from gateway.plugins import hookspecs

PAGE = Path(__file__).parent.parent / "docs" / "plugin-attributes.md"

HEAD = """# Attributes of requests, answers and test doubles

This page is made from the code by `python -m tests.plugin_attributes`, and a test holds it to the code. It has the
attributes, properties and methods of every public class of `gateway` and `gateway.testing`, of the classes that are
types of their attributes, and of the [errors](#errors) that a provider raises. [Plugins](plugins.md) says how a
provider uses them.

A name without a module in its heading is imported from `gateway`. A default of – means that the attribute is always
given, `= …` that an argument may be left out. `UNSET` is `msgspec.UNSET`: the wire has no such field. `Raw` is
`msgspec.Raw`, JSON that is not decoded: `msgspec.json.decode(raw)` decodes it. In a request, an absent field and one
with null are both `None`; what a field means is in [fields](fields.md).
"""

ERRORS = """An error is made with `(message, code=…, param=…, retry_after=…, detail=…)`; all may be left out. What is
set later counts as well: `error.retry_after = 7`. A provider raises the errors of the second table, and `InvalidValue`,
`ContextLengthExceeded`, `ContentFiltered` and `RequestTooLarge` about a request ([errors](errors.md)).
"""

GROUPS = (
    (
        "The provider",
        (
            "Provider",
            "Target",
            "Timeouts",
            "Secret",
            "Chat",
            "Embeddings",
            "ImageEdit",
            "Images",
            "Moderation",
            "Realtime",
            "RealtimeSession",
            "Rerank",
            "Speech",
            "Transcription",
            "CurrentCall",
        ),
    ),
    ("Lists of models", ("ModelList", "ListLimits", "ListedModel")),
    (
        "The HTTP client",
        (
            "Upstream",
            "Answer",
            "UpstreamSocket",
            "SocketRefused",
            "Multipart",
            "Event",
            "EventParser",
            "LanedStream",
            "TextLane",
        ),
    ),
    ("Chat: the request", ("ChatRequest",)),
    ("Chat: the answer", ("ChatChunk", "ChatCompletion", "CompletionUsage")),
    ("Embeddings", ("EmbeddingRequest", "EmbeddingAnswer")),
    ("Images", ("ImageRequest", "ImageEditRequest", "ImageFile", "ImageAnswer", "ImageEvent")),
    ("Moderation", ("ModerationRequest", "ModerationAnswer")),
    ("Realtime", ("RealtimeRequest",)),
    ("Rerank", ("RerankRequest", "RerankAnswer")),
    ("Speech", ("SpeechRequest", "SpeechChunk")),
    ("Transcription", ("AudioFile", "TranscriptionRequest", "Transcript", "TranscriptEvent")),
    (
        "Hooks",
        ("Hook", "CheckCall", "CheckedCall", "CheckAnswer", "CheckedAnswer", "Authenticate", "Identity", "Route"),
    ),
    ("After the call", ("CallRecord", "Usage")),
    ("Test doubles", ("CheckReport", "FakeUpstream", "Reply", "Seen", "RunningGateway")),
)


@functools.cache
def page() -> str:
    """The whole page."""
    parts, told = [HEAD], set[type]()
    groups = [(title, [_named(name) for name in names]) for title, names in GROUPS]
    rest = [kind for kind in _public() if not any(kind in reachable(first) for _, first in groups)]
    if rest:
        groups.insert(1, ("More of the provider", rest))
    for title, first in groups:
        parts.append(f"## {title}\n")
        for kind in reachable(first):
            if kind not in told:
                told.add(kind)
                parts.append(section(kind))
    return "\n".join(
        [
            *parts,
            "## Hooks\n",
            _hooks(),
            "## Errors\n",
            ERRORS,
            *_errors(),
            "## Functions\n",
            _functions(gateway),
            "## Functions of `gateway.testing`\n",
            _functions(gateway.testing),
        ]
    )


def _errors() -> Iterator[str]:
    """The attributes of every error, and what the errors of providers are."""
    yield section(errors.GatewayError)
    kinds: list[type[errors.UpstreamError]] = [errors.UpstreamError, *errors.UpstreamError.__subclasses__()]
    rows = [_error(kind) for kind in kinds if kind.__module__.startswith("gateway.")]  # tests have their own
    head = "| error | status | code | retry_after | another target | origin | meaning |\n" + "| --- " * 7 + "|\n"
    yield f"### Errors of providers\n\n{head}{''.join(rows)}"


def _error(kind: type[errors.UpstreamError]) -> str:
    wait = "–" if kind.default_wait is None else f"{kind.default_wait:g}"
    other = "yes" if kind.retryable else "no"
    cells = f"`{kind.__name__}`", f"{kind.status}", f"`{kind.default_code}`", wait, other, f"`{kind.default_origin}`"
    return f"| {' | '.join((*cells, _escaped(_first_line(kind))))} |\n"


def _hooks() -> str:
    """A table of every hook that a plugin may implement."""
    hooks = [(name, hook) for name, hook in vars(hookspecs).items() if hasattr(hook, "gateway_spec")]
    rows = [f"| `{name}({_escaped(_parameters(hook))})` | {_escaped(_first_line(hook))} |\n" for name, hook in hooks]
    return (
        "A module implements a hook as a function with `@hookimpl`.\n\n| hook | meaning |\n| --- | --- |\n"
        + "".join(rows)
    )


def _functions(module: ModuleType) -> str:
    """A table of every public function of a module."""
    rows = []
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if inspect.isfunction(value):
            cells = f"`{name}({_parameters(value)})`", _returned(value), _first_line(value)
            rows.append(f"| {' | '.join(map(_escaped, cells))} |\n")
    return "| function | returns | meaning |\n| --- | --- | --- |\n" + "".join(rows)


def _public() -> list[type]:
    values = (getattr(gateway, name) for name in gateway.__all__)
    return [value for value in values if inspect.isclass(value)]


def _named(name: str) -> type:
    home: Any = gateway if name in gateway.__all__ else gateway.testing
    kind: type = getattr(home, name)
    return kind


def reachable(first: Iterable[type]) -> list[type]:
    """These classes, and the structs that are types of their attributes, in the order in which a reader meets them."""
    found: dict[type, None] = {}
    waiting = list(first)
    while waiting:
        kind = waiting.pop(0)
        if kind not in found:
            found[kind] = None
            inner = [one for hint in _hints(kind).values() for one in _structs(hint)]
            waiting = [*dict.fromkeys(inner), *waiting]
    return list(found)


def _hints(kind: type) -> dict[str, Any]:
    try:
        hints = get_type_hints(kind)
    except NameError:  # of a name that only type checkers import
        return {}
    return {name: hint for name, hint in hints.items() if not name.startswith("_")} if issubclass(kind, Struct) else {}


def _structs(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and issubclass(hint, Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs(inner)


def section(kind: type) -> str:
    """Heading, docstring, and a table of the attributes."""
    home = "" if kind.__name__ in gateway.__all__ else f" of `{_home(kind)}`"
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n", maxsplit=1)[0].split())
    rows = [*_attributes(kind), *_members(kind)]
    table = "".join(f"| {' | '.join(_escaped(cell) for cell in row)} |\n" for row in rows)
    tag = _tag(kind)
    parts = [f"### `{kind.__name__}`{home}\n", f"{text}{tag}\n"]
    if rows:
        parts.append(f"| attribute | type | default | meaning |\n| --- | --- | --- | --- |\n{table}")
    return "\n".join(parts)


def _home(kind: type) -> str:
    if kind.__name__ in gateway.testing.__all__:
        return "gateway.testing"
    return "gateway.errors" if hasattr(errors, kind.__name__) else kind.__module__


def _tag(kind: type) -> str:
    config = getattr(kind, "__struct_config__", None)
    if config is None or config.tag is None:
        return ""
    return f" On the wire, its `{config.tag_field}` is `{config.tag}`."


def _attributes(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Declared attributes, those of bases first."""
    seen: dict[str, tuple[str, str, str, str]] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("gateway"):
            continue
        for name, node, meaning in declared(base):
            annotation = node.annotation if isinstance(node, ast.AnnAssign) else _of_constant(node.value)
            seen[name] = (f"`{name}`", _type(annotation, base), _default(kind, name, node), meaning)
    yield from seen.values()


def _members(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Properties and methods."""
    members: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("gateway"):
            members |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    for name, value in members.items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property):
            assert value.fget is not None
            yield f"`{name}`", _returned(value.fget), "–", _first_line(value)
        elif inspect.isfunction(function):
            yield f"`{name}({_parameters(function)})`", _returned(function), "–", _first_line(function)


def _parameters(function: Any) -> str:
    shown = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in ("self", "cls"):
            optional = "" if parameter.default is inspect.Parameter.empty else " = …"
            star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
            kind = ast.parse(str(parameter.annotation), mode="eval").body
            shown.append(f"{star}{name}: {_type(kind, function).strip('`')}{optional}")
    return ", ".join(shown)


def _returned(function: Any) -> str:
    text = str(function.__annotations__.get("return", ""))
    shown = _type(ast.parse(text, mode="eval").body, function) if text else ""
    return f"awaitable {shown}" if inspect.iscoroutinefunction(function) else shown


def _first_line(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n", maxsplit=1)[0].split())


def _default(kind: type, name: str, node: ast.AnnAssign | ast.Assign) -> str:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    if node.value is None or isinstance(target, ast.Attribute):
        return "–"
    if issubclass(kind, Struct) and name in kind.__struct_fields__:
        found = {field.name: field for field in msgspec.structs.fields(kind)}[name]
        if found.default_factory is not msgspec.NODEFAULT:
            return f"`{found.default_factory.__name__}()`"
        return f"`{found.default!r}`"
    return f"`{ast.unparse(node.value)}`"


def _of_constant(value: ast.expr | None) -> ast.expr | None:
    """The type of an attribute that has none beside it."""
    if isinstance(value, ast.JoinedStr):
        return ast.Name("str")
    return ast.Name(type(value.value).__name__) if isinstance(value, ast.Constant) else None


def _type(node: ast.expr | None, owner: Any) -> str:
    """The type without what only validation and the gateway read of it."""
    return "" if node is None else f"`{ast.unparse(_Plain(owner.__module__).visit(copy.deepcopy(node)))}`"


@functools.cache
def aliases(module: str) -> dict[str, ast.expr]:
    """The names for types that a module defines, and those that it imports from other modules of the gateway."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gateway.schemas"):
            given = aliases(str(node.module))
            found |= {alias.name: given[alias.name] for alias in node.names if alias.name in given}
        inner = node.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else [node]
        for one in inner:
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Subscript | ast.BinOp | ast.Name):
                found |= {target.id: one.value for target in one.targets if isinstance(target, ast.Name)}
    plain = _Plain(module, found)
    return {name: plain.visit(copy.deepcopy(value)) for name, value in found.items() if name[0].isupper()}


class _Plain(ast.NodeTransformer):
    """Removes `Annotated`, `ClassVar` and the classes of fields, and writes out the names of types."""

    WRAPPERS = frozenset({"Annotated", "ClassVar", "Core", "Semantic", "Sampling", "Hint"})

    def __init__(self, module: str, known: Mapping[str, ast.expr] | None = None) -> None:
        self._known = aliases(module) if known is None else known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        known = self._known.get(node.id)
        if known is None or node.id in self.WRAPPERS or ast.unparse(known) == node.id:
            return node
        return self.visit(copy.deepcopy(known))  # type: ignore[no-any-return]

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self.WRAPPERS:
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return self.visit(inner)  # type: ignore[no-any-return]
        return self.generic_visit(node)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").strip()


# Comments of the source ----------------------------------------------------------------------------------------------


def declared(kind: type) -> Iterator[tuple[str, ast.AnnAssign | ast.Assign, str]]:
    """Every public attribute that a class declares in its body or sets in `__init__`, with its comment."""
    tree, lines = _source(kind)
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            yield node.target.id, node, _comment(lines, node)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__" and not issubclass(kind, Struct):
            yield from _set_in(node, lines)


def _set_in(function: ast.FunctionDef, lines: list[str]) -> Iterator[tuple[str, ast.AnnAssign | ast.Assign, str]]:
    types = {argument.arg: argument.annotation for argument in (*function.args.args, *function.args.kwonlyargs)}
    for node in ast.walk(function):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if (
                isinstance(target, ast.Attribute)
                and not target.attr.startswith("_")
                and ast.unparse(target.value) == "self"
            ):
                assert isinstance(node, ast.AnnAssign | ast.Assign)
                comment = _comment(lines, node)
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in types:
                    annotation = types[node.value.id] or ast.Constant("")
                    yield target.attr, ast.AnnAssign(target, annotation, node.value, 0), comment
                else:
                    yield target.attr, node, comment


@functools.cache
def _source(kind: type) -> tuple[ast.ClassDef, list[str]]:
    text = textwrap.dedent(inspect.getsource(kind))
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.ClassDef)
    return tree, text.splitlines()


def _comment(lines: list[str], node: ast.stmt) -> str:
    """The comment at the end of the statement, or the `#:` lines above it."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    after = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    if match := re.match(r"\s*#:? (.*)", after):
        return match[1].split("  # noqa")[0]
    above: list[str] = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip().removeprefix("#:").strip())
    return " ".join(above)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}: {page().count(chr(10))} lines\n")
