"""TOML tables into frozen Structs, with every problem named by file and key, all of them in one go.

`msgspec.convert` stops at its first error and knows no file. `TomlReader` walks the fields itself and hands only
the leaves to msgspec. Each unknown key (with the nearest known one), missing key and wrong value becomes a
`SettingsProblem`. `env:NAME` stands for any value but a table (`gateway.config.variables`). A field of type
`Annotated[T, FromToml(read)]` is read by that function; `Secret` fields take `env:` and `file:`.
Sharp edge: a table with any problem yields None, so look at `reader.problems` before using what it returned.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct, structs

from gateway.config.origins import Key as Key
from gateway.config.origins import Origins
from gateway.config.public_tables import PublicTables
from gateway.config.regular_files import read_regular
from gateway.config.secret import HIDDEN, Secret
from gateway.config.variables import VariableError, is_bounded_list, is_variable, takes_variable, typed, variable_text

S = TypeVar("S", bound=Struct)

SchemaOf = Callable[[Any], dict[str, Any]]  # the JSON Schema of a type
SHORT = 3  # characters of a variable, which a message may have by chance
_CLOSE = 0.7  # similarity from which a key of a table in this one is suggested

_BARE_KEY = re.compile(r"[A-Za-z0-9_]+", re.ASCII)  # TOML allows "-" too, but model names are seldom written bare


class SettingsProblem(Struct, frozen=True):
    """One thing wrong with a configuration."""

    file: str
    key: str  # dotted as TOML writes it; empty when the file as a whole is meant
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class FromToml(Struct, frozen=True, eq=False):
    """Marks a type that is read by a function of the TOML value, which raises ValueError for what it cannot take.

    `schema`: what editors can check of the value, as JSON Schema.
    """

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]


class FromTables(Struct, frozen=True, eq=False):
    """Like FromToml, for a value with tables in it: the function gets reader and key too, and None means problems."""

    read: Callable[[TomlReader, Any, Key], Any]
    schema: Callable[[SchemaOf], Mapping[str, Any]]  # of the tables in it
    is_reference: bool = False  # `env:NAME` is a value of its own


class SettingsError(Exception):
    """A configuration that cannot be used, with every problem found in it; `str()` has one problem per line."""

    def __init__(self, problems: list[SettingsProblem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problems,))


def dotted(key: Key) -> str:
    """The key as TOML writes it: `models."gpt-5-mini".targets[0]`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


def nearest(name: str, known: Iterable[str], *, similarity: float = 0.0) -> str | None:
    """The known name most like `name`, however unlike; None if none has the `similarity`, from 0 to 1."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=similarity)
    return matches[0] if matches else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; nearest: "x"`, to end a message about an unknown name; empty when nothing is known."""
    match = nearest(name, known)
    return "" if match is None else f"; nearest: {json.dumps(match, ensure_ascii=False)}"


def read_file(path: Path, *, most: int = -2) -> bytes:
    """The bytes of a configuration; SettingsError when they cannot be read, or are more than `most`."""
    try:
        raw = read_regular(path, most + 1)  # all of them without a limit
    except OSError as error:
        raise SettingsError([SettingsProblem(str(path), "", f"cannot be read: {error.strerror}")]) from None
    if 0 <= most < len(raw):
        raise SettingsError([SettingsProblem(str(path), "", "is too long, alone or with other included files")])
    return raw


@functools.cache
def _tables_in(kind: type[Struct]) -> dict[str, dict[str, structs.FieldInfo]]:
    """The fields of a section that are tables of their own, with the fields of each."""
    kinds = {name: _without_none(field.type) for name, field in fields_of(kind).items()}
    return {name: fields_of(k) for name, k in kinds.items() if isinstance(k, type) and issubclass(k, Struct)}


@functools.cache
def fields_of(kind: type[Struct]) -> dict[str, structs.FieldInfo]:
    """The fields of a section by their names in the file; looked up once: each look leaves cycles in msgspec."""
    return {field.encode_name: field for field in structs.fields(kind)}


def parse_toml(raw: bytes, *, file: str) -> dict[str, Any]:
    """The document that the bytes of `file` hold, with exact decimals for floats."""
    try:
        # Decimal keeps 0.1 what the operator wrote; as a double it would be 0.1000000000000000055.
        return tomllib.loads(raw.decode(), parse_float=Decimal)
    except UnicodeDecodeError:
        message = "is not UTF-8 text"
    except RecursionError:
        message = "is nested too deeply"
    except ValueError as error:  # TOMLDecodeError, and int()'s refusal of numbers with thousands of digits
        message = f"is not valid TOML: {error}"
    raise SettingsError([SettingsProblem(file, "", message)])


class TomlReader:
    """Reads one document; `problems` grows as it goes."""

    def __init__(
        self,
        file: str,
        *,
        folder: Path | None = None,
        literals: bool = False,
        has_variables: bool = True,
        origins: Origins | None = None,
        tables: PublicTables | None = None,
    ) -> None:
        self.file = file
        self.origins = origins or Origins(file)
        self.has_variables = has_variables  # `env:NAME` stands for a value
        self.folder = folder  # where relative `file:` secrets are found from
        self.literals = literals  # secrets may stand in the file as they are
        self.tables = tables or PublicTables()  # of public prices
        self.problems: list[SettingsProblem] = []
        self._variables: dict[Key, tuple[str, set[str]]] = {}  # names, and texts that no message shows, by key

    def problem(self, key: Key, message: str) -> None:
        """Note that `key` is wrong; what a variable holds is hidden."""
        for length in range(len(key), 0, -1):
            if (found := self._variables.get(key[:length])) is not None:
                message = f"environment variable {found[0]}: {_hidden(message, found[1])}"
                break
        self.problems.append(SettingsProblem(self.origins.file_of(key), dotted(key), message))

    def unknown(self, key: Key, known: Iterable[str]) -> None:
        """Note that nobody knows `key`, and name the nearest known one."""
        self.problem(key, f"unknown key{suggestion(str(key[-1]), known)}")

    def _no_field(self, name: str, kind: type[Struct], key: Key, around: type[Struct] | None) -> None:
        """Note that `kind`, the table of `key`, has no field `name`; a table in it or `around` it may have one."""
        known = fields_of(kind)
        inner = {field: table for table, fields in _tables_in(kind).items() for field in fields if field not in known}
        if name in inner:
            self.problem((*key, name), f"belongs to [{dotted((*key, inner[name]))}]")
        elif around is not None and name in fields_of(around):
            self.problem((*key, name), f"belongs to [{dotted(key[:-1])}]")
        else:
            match = nearest(name, [*known, *inner], similarity=_CLOSE) or name
            self.unknown((*key, name), [f"{inner[match]}.{match}"] if match in inner else known)

    def struct(self, kind: type[S], table: object, key: Key, *, around: type[Struct] | None = None) -> S | None:
        """A `kind` from `table`, or None after noting problems; `around` is the kind of the table that has it."""
        if not isinstance(table, dict):
            self.problem(key, f"expected a table, got {_kind_of(table)}")
            return None
        before = len(self.problems)
        fields = fields_of(kind)
        for name in table.keys() - fields.keys():
            self._no_field(name, kind, key, around)
        values = {
            field.name: self.value(field.type, table[name], (*key, name), around=kind)
            for name, field in fields.items()
            if name in table
        }
        for name, field in fields.items():
            if field.required and name not in table:
                self.problem((*key, name), "missing")
        return kind(**values) if len(self.problems) == before else None

    def value(self, kind: Any, value: object, key: Key, *, around: type[Struct] | None = None) -> Any:
        """One value of type `kind`; None after noting a problem. `around`: see `struct`."""
        kind = _without_none(kind)
        if self.has_variables and is_variable(value) and takes_variable(kind):
            return self._of_variable(kind, str(value), key)
        return self._value(kind, value, key, around=around)

    def _of_variable(self, kind: Any, reference: str, key: Key) -> Any:
        """The value of a variable, in which no other one is named; problems name it and hide its value."""
        try:
            name, text = variable_text(reference)
        except VariableError as error:
            self.problem(key, str(error))
            return None
        inner = TomlReader(
            self.file, folder=self.folder, literals=self.literals, has_variables=False, tables=self.tables
        )
        found = typed(text, kind)
        self._variables[key] = name, {text, *_texts(found)}
        value = inner._value(kind, found, key)
        for problem in inner.problems:
            self.problem(key, problem.message)
        return value if not inner.problems else None

    def _value(self, kind: Any, value: object, key: Key, *, around: type[Struct] | None = None) -> Any:
        """`value` for what stands in the file itself."""
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self.struct(kind, value, key, around=around)
        origin, arguments = get_origin(kind), get_args(kind)
        if self.has_variables and isinstance(value, list) and any(map(is_variable, value)) and is_bounded_list(kind):
            return self._of_bounded_list(kind, value, key)
        if origin in (list, tuple) and isinstance(value, list):
            return origin(self.value(arguments[0], item, (*key, index)) for index, item in enumerate(value))
        if origin is dict and isinstance(value, dict):
            return {name: self.value(arguments[1], item, (*key, name)) for name, item in value.items()}
        return self._leaf(kind, value, key)

    def _of_bounded_list(self, kind: Any, value: list[Any], key: Key) -> Any:
        """A list with variables in it, whose type has bounds and is converted as a whole."""
        before, item_kind = len(self.problems), get_args(get_args(kind)[0])[0]
        items = [
            self._of_variable(item_kind, item, (*key, index)) if is_variable(item) else item
            for index, item in enumerate(value)
        ]
        return self._leaf(kind, items, key) if len(self.problems) == before else None

    def _leaf(self, kind: Any, value: object, key: Key) -> Any:
        try:
            if kind is Secret:
                return Secret.parse(value, literals=self.literals, folder=self.folder)
            for mark in getattr(kind, "__metadata__", ()):
                if isinstance(mark, FromToml):
                    return mark.read(value)
                if isinstance(mark, FromTables):
                    return mark.read(self, value, key)
            if kind is Any:
                return plain(value)
            if get_origin(kind) is Literal:
                return _chosen(get_args(kind), value)
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            self.problem(key, _readable(str(error)))
        except ValueError as error:
            self.problem(key, str(error))
        return None


def _texts(value: object) -> Iterable[str]:
    """How messages may write what a variable holds."""
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [format(value, "f")] if isinstance(value, Decimal) else [str(value)]


def _hidden(message: str, texts: Iterable[str]) -> str:
    for text in sorted(texts, key=len, reverse=True):
        if len(text) > SHORT:
            message = message.replace(text, HIDDEN)
    return message


def _chosen(choices: tuple[Any, ...], value: object) -> Any:
    """`value` if it is one of `choices`; the type counts too, for True equals 1."""
    if any(value == choice and type(value) is type(choice) for choice in choices):
        return value
    listed = ", ".join(json.dumps(choice) for choice in choices)
    raise ValueError(f"expected one of {listed}")


def plain(value: Any) -> Any:
    """`value` with its decimals as floats, for options whose types nobody knows yet."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def _without_none(kind: Any) -> Any:
    """`T` of `T | None`: TOML has no null, so None is only ever a default."""
    if get_origin(kind) in (types.UnionType, Union):
        rest = [part for part in get_args(kind) if part is not types.NoneType]
        return rest[0] if len(rest) == 1 else kind
    return kind


def _kind_of(value: object) -> str:
    """TOML's name for what `value` is."""
    names: dict[type, str] = {
        bool: "a boolean",
        int: "an integer",
        Decimal: "a float",
        float: "a float",
        str: "a string",
        list: "an array",
        dict: "a table",
    }
    return names.get(type(value), "a date or time")


def _readable(message: str) -> str:
    """msgspec's message in TOML's words."""
    text = message.split(" - at ")[0].replace("`decimal`", "`float`").replace("`", "")
    return text[:1].lower() + text[1:]
