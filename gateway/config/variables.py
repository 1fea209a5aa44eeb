"""Values by reference: `env:NAME` in place of any value of a configuration that is no secret.

The text of the variable is read as the setting's type: text is taken as it is, a list is TOML or has commas, and
anything else is TOML, such as `8080`, `0.5`, `true` or `2026-11-21`. Fields that are references by themselves, secrets
above all, keep them: see `Reference`.
"""

from __future__ import annotations

import os
import re
import tomllib
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from msgspec import Struct

from gateway.config.secret import Secret

PREFIX: Final = "env:"
#: What a file may say in place of a value, as JSON Schema.
VARIABLE: Final = {"type": "string", "pattern": r"^env:[A-Za-z_][A-Za-z0-9_]*$(?!\n)"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class IsReference:
    """Marks a text that refers to its value, as `env:NAME` or `file:PATH`: it is read where it is used."""


Reference = Annotated[str, IsReference()]


class VariableError(ValueError):
    """A variable that is not set, or a name that is none; the message has no value."""


def is_variable(value: object) -> bool:
    """Whether a value of a file refers to a variable, where its field permits it."""
    return isinstance(value, str) and value.startswith(PREFIX)


def variable_text(reference: str) -> tuple[str, str]:
    """Name and text of the variable; VariableError."""
    name = reference.removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise VariableError("env: wants the name of an environment variable, as in env:PORT")
    text = os.environ.get(name)
    if text is None:
        raise VariableError(f"environment variable {name} is not set")
    return name, text.strip()


def typed(text: str, kind: Any) -> Any:
    """The TOML value for a field of this type; the text itself where it is no TOML, which the type then judges."""
    if not _is_read_otherwise(kind) and _is_list(kind) and not text.startswith("["):
        return [item for part in text.split(",") if (item := part.strip())]
    if is_text(kind):
        return text
    try:
        document = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except (ValueError, RecursionError):
        return text
    return document["value"] if document.keys() == {"value"} else text


def is_text(kind: Any) -> bool:
    """Whether a field takes any text, or one of several."""
    if kind is str:
        return True
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        return arguments[0] is str and not _is_read_otherwise(kind)
    return get_origin(kind) is Literal and all(isinstance(choice, str) for choice in arguments)


def takes_variable(kind: Any) -> bool:
    """Whether a field of this type may be given as `env:NAME`; tables may not, and references are what they are."""
    marks = getattr(kind, "__metadata__", ())
    if any(isinstance(mark, IsReference) or getattr(mark, "is_reference", False) for mark in marks):
        return False
    if _is_read_otherwise(kind):
        return True
    inner = _inner(kind)
    if _is_list(kind):
        return takes_variable(get_args(inner)[0])
    if inner is Any or get_origin(inner) is dict:
        return False
    return not (isinstance(inner, type) and issubclass(inner, (Struct, Secret)))


def is_bounded_list(kind: Any) -> bool:
    """Whether it is an annotated list of values that may be variables."""
    return get_origin(kind) is Annotated and _is_list(kind) and not _is_read_otherwise(kind) and takes_variable(kind)


def _inner(kind: Any) -> Any:
    """The type in an annotated one."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_list(kind: Any) -> bool:
    return get_origin(_inner(kind)) in (list, tuple)


def _is_read_otherwise(kind: Any) -> bool:
    """Whether a function reads it: `FromToml` and `FromTables`."""
    return any(hasattr(mark, "read") for mark in getattr(kind, "__metadata__", ()))
