"""From the bytes of a JSON body to a typed request, or to the exact 400 (docs/errors.md, "The request").

A `BodyDecoder` is made once per endpoint. Its fast path is two msgspec passes: the typed view, and a table of the raw
top-level fields for forwarding. Only when one of them refuses is the body looked at again, by `schema_errors`, for the
path, the code and a message that helps::

    decoder = BodyDecoder(ChatRequest, large_fields=frozenset({"messages"}))
    request, fields = decoder.decode(body)

Sharp edges: msgspec does not check UTF-8 in what it skips, so that is done first; and tiny values cost up to 100 times
their bytes as objects, so a body over 256 KiB is examined first (`gateway.schemas.large_json`), and only its
`large_fields` may be over 1 MiB.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Generic, NoReturn, TypeVar

import msgspec
import msgspec.inspect
from msgspec import Raw

from gateway.errors import BadRequest, InvalidJSON, InvalidType, InvalidValue, MissingParameter, OutOfRange
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.large_json import LARGE, examined
from gateway.schemas.schema_errors import first_error, invalid, parse_json

T = TypeVar("T", bound=msgspec.Struct)

LARGEST_FIELD = 1 << 20  # bytes
MAX_EXPLAINED = 20_000  # values; beyond it an error is named by msgspec alone, which builds nothing

_AT = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(.+)`")
_KINDS = {b"{": "an object", b"[": "an array", b'"': "a string", b"n": "null", b"t": "a boolean", b"f": "a boolean"}


def json_kind(first: int) -> str:
    """What a JSON value is, told by its first byte."""
    return _KINDS.get(bytes((first,)), "a number")


class BodyDecoder(Generic[T]):
    """Decodes bodies into the Struct type `kind`.

    `own` names attributes that are the gateway's and not the wire's; `large_fields` names fields that may be large.
    """

    def __init__(
        self, kind: type[T], *, large_fields: frozenset[str] = frozenset(), own: frozenset[str] = frozenset()
    ) -> None:
        self._kind = kind
        self._large_fields = large_fields
        self._own = own
        self._typed = msgspec.json.Decoder(kind)
        self._table = msgspec.json.Decoder(dict[str, Raw])

    def decode(self, body: bytes | Examined) -> tuple[T, dict[str, Raw]]:
        """The typed request, and its top-level fields as sent, the last of duplicates; raises BadRequest."""
        if not isinstance(body, bytes):
            return self._decode_large(body)
        if len(body) > LARGE:
            return self._decode_large(examined(body))
        try:
            if not body.isascii():
                body.decode()
            return self._typed.decode(body), self._table.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return self._without_empty_objects(body) or self._refuse(body, error)

    def _decode_large(self, body: Examined) -> tuple[T, dict[str, Raw]]:
        """The same for a large body, whose text and top level were examined before."""
        content, fields = body.content, body.fields
        try:
            if fields is None:
                fields = self._table.decode(content)
            self._check_shape(len(content), fields)
            return self._typed.decode(content), fields
        except (msgspec.MsgspecError, RecursionError) as error:
            return self._without_empty_objects(content) or self._refuse(content, error, fields)

    @cached_property
    def _fields(self) -> dict[str, msgspec.inspect.Field]:
        kind = msgspec.inspect.type_info(self._kind)
        assert isinstance(kind, msgspec.inspect.StructType)
        return {field.encode_name: field for field in kind.fields if field.name not in self._own}

    def _check_shape(self, rest: int, fields: dict[str, Raw]) -> None:
        """Check the sizes of the fields of a body of `rest` bytes."""
        for name in self._fields:
            size = len(memoryview(fields[name])) if name in fields else 0
            rest -= size
            if size > LARGEST_FIELD and name not in self._large_fields:
                raise invalid(name, f"it is too large ({size} bytes; at most {LARGEST_FIELD})")
        if rest > LARGEST_FIELD:
            raise InvalidValue(
                f"The unknown fields of the request are too large ({rest} bytes; at most {LARGEST_FIELD})."
            )

    # Slow path -----------------------------------------------------------------------------------------------------

    def _without_empty_objects(self, body: bytes) -> tuple[T, dict[str, Raw]] | None:
        """The request without optional objects that are `[]`, as PHP writes `{}`; None if that is not what is wrong."""
        try:
            fields = self._table.decode(body)
            empty = [name for name in self._objects & fields.keys() if _EMPTY.fullmatch(bytes(fields[name]))]
            if not empty:
                return None
            for name in empty:
                del fields[name]
            return self._typed.decode(msgspec.json.encode(fields)), fields
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    @cached_property
    def _objects(self) -> frozenset[str]:
        """The optional fields that are, or may be, an object."""
        return frozenset(
            name for name, field in self._fields.items() if not field.required and _may_be_object(field.type)
        )

    def _refuse(self, body: bytes, error: Exception, fields: dict[str, Raw] | None = None) -> NoReturn:
        raise self._explain(body, error, fields) from None

    def _explain(self, body: bytes, error: Exception, fields: dict[str, Raw] | None = None) -> BadRequest:
        """The 400 for what a decoder refused; bad JSON anywhere counts before a bad value."""
        if not isinstance(error, msgspec.ValidationError):
            # msgspec calls it truncated data if the surrogate is near the end.
            lone = _LONE_SURROGATE.search(body) if isinstance(error, msgspec.DecodeError) else None
            if lone is not None:
                return InvalidJSON(f"The request body has a lone surrogate (byte {lone.start(1)}).")
            return _not_json(error, body)
        try:
            fields = self._table.decode(body) if fields is None else fields
        except (msgspec.MsgspecError, RecursionError) as worse:
            return _not_json(worse, body)
        found = _AT.search(str(error))
        path = found[1] if found else ""
        name = re.split(r"[.\[]", path, maxsplit=1)[0]
        if name not in self._fields:
            return self._missing(fields) or InvalidValue()
        return self._error_in(name, bytes(fields.get(name, b""))) or _by_msgspec(str(error), path)

    def _missing(self, fields: dict[str, Raw]) -> BadRequest | None:
        for name, field in self._fields.items():
            if field.required and name not in fields:
                return MissingParameter(f"Missing required parameter: '{name}'.", param=name)
        return None

    def _error_in(self, name: str, raw: bytes) -> BadRequest | None:
        # A JSON text has at most as many values as commas and opening brackets, and one.
        if len(raw) > LARGEST_FIELD or sum(map(raw.count, (b",", b"[", b"{"))) > MAX_EXPLAINED:
            return None
        try:
            return first_error(parse_json(raw), self._fields[name].type, name)
        except RecursionError as error:
            return _not_json(error, raw)


_EMPTY = re.compile(rb"\[[ \t\r\n]*\]")


def _may_be_object(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(map(_may_be_object, kind.types))
    return isinstance(kind, msgspec.inspect.StructType | msgspec.inspect.DictType)


_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def _not_json(error: Exception, body: bytes) -> InvalidJSON:
    """Why a body is no JSON object at all, and where, in lines and columns as editors count them."""
    if isinstance(error, UnicodeDecodeError):
        return InvalidJSON(f"The request body is not valid UTF-8 (byte {error.start}).")
    if isinstance(error, RecursionError):
        return InvalidJSON("The request body is nested too deeply.")
    if isinstance(error, msgspec.ValidationError):
        return InvalidJSON("The request body must be a JSON object.")
    return InvalidJSON(f"The request body is not valid JSON: {_fault(body) or error}.")


_checker = json.JSONDecoder(parse_int=len, parse_float=len)  # numbers cost no time


def _fault(body: bytes) -> str:
    """What was expected and where; empty for a large body, and for what only msgspec refuses, such as NaN."""
    if len(body) > LARGE:  # the parser builds the whole document
        return ""
    try:
        _checker.decode(body.decode())
    except json.JSONDecodeError as error:
        return f"{error.msg} (line {error.lineno}, column {error.colno})"
    except (ValueError, RecursionError):
        pass
    return ""


def _by_msgspec(message: str, path: str) -> BadRequest:
    """msgspec's own finding, for values too dense to be walked in bounded time."""
    param, cause = path.replace("[...]", ""), _AT.sub("", message)
    missing = _MISSING.search(cause)
    if missing:
        param = f"{param}.{missing[1]}"
        return MissingParameter(f"Missing required parameter: '{param}'.", param=param)
    text = f"Invalid '{param}': {cause}."[:300]
    if cause.startswith("Expected `array` of length <="):
        return OutOfRange(text, code="array_above_max_length", param=param)
    return (InvalidType if ", got `" in cause else InvalidValue)(text, param=param)
