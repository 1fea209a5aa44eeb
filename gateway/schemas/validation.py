"""From the bytes of a JSON body to a typed request, or to the exact 400 (docs/errors.md, "The request").

A `BodyDecoder` is made once per endpoint. Its fast path is two msgspec passes: the typed view, and a table of the raw
top-level fields for forwarding. Only when one of them refuses is the body looked at again, by `schema_errors`, for the
path, the code and a message that helps::

    decoder = BodyDecoder(ChatRequest, large_fields=frozenset({"messages"}))
    request, fields = decoder.decode(body)

Sharp edges: msgspec does not check UTF-8 in what it skips, so that is done first; and tiny values cost up to 100 times
their bytes as objects, so in a body over 1 MiB only the `large_fields` may be over 1 MiB.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
import msgspec.inspect
from msgspec import Raw

from gateway.errors import BadRequest, InvalidJSON, InvalidType, InvalidValue, MissingParameter, OutOfRange
from gateway.schemas.schema_errors import first_error, invalid, parse_json

T = TypeVar("T", bound=msgspec.Struct)

LARGE = 1 << 20  # bytes from which a body is checked for its shape before anything is built of it
MAX_EXPLAINED = 250_000  # values; beyond it an error is named by msgspec alone, which builds nothing

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

    def decode(self, body: bytes) -> tuple[T, dict[str, Raw]]:
        """The typed request, and its top-level fields as sent, the last of duplicates; raises BadRequest."""
        try:
            if not body.isascii():
                body.decode()
            if len(body) > LARGE:
                self._check_shape(body)
            return self._typed.decode(body), self._table.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._explain(body, error) from None

    @cached_property
    def _fields(self) -> dict[str, msgspec.inspect.Field]:
        kind = msgspec.inspect.type_info(self._kind)
        assert isinstance(kind, msgspec.inspect.StructType)
        return {field.encode_name: field for field in kind.fields if field.name not in self._own}

    @cached_property
    def _outline(self) -> msgspec.json.Decoder[msgspec.Struct]:
        """Finds where each known field lies, and builds nothing of the others."""
        names = [(name, Raw, Raw()) for name in self._fields]
        return msgspec.json.Decoder(msgspec.defstruct("Outline", names))

    def _check_shape(self, body: bytes) -> None:
        outline = self._outline.decode(body)
        rest = len(body)
        for name in self._fields:
            size = len(memoryview(getattr(outline, name)))
            rest -= size
            if size > LARGE and name not in self._large_fields:
                raise invalid(name, f"it is too large ({size} bytes; at most {LARGE})")
        if rest > LARGE:
            raise InvalidValue(f"The unknown fields of the request are too large ({rest} bytes; at most {LARGE}).")

    # Slow path -----------------------------------------------------------------------------------------------------

    def _explain(self, body: bytes, error: Exception) -> BadRequest:
        """The 400 for what a decoder refused; bad JSON anywhere counts before a bad value."""
        try:
            outline = self._outline.decode(body) if isinstance(error, msgspec.ValidationError) else None
        except (msgspec.MsgspecError, RecursionError) as worse:
            return _not_json(worse)
        if outline is None:
            return _not_json(error)
        found = _AT.search(str(error))
        path = found[1] if found else ""
        name = re.split(r"[.\[]", path, maxsplit=1)[0]
        if name not in self._fields:
            return self._missing(outline) or InvalidValue()
        raw = getattr(outline, name)
        return self._error_in(name, bytes(raw)) or _by_msgspec(str(error), path)

    def _missing(self, outline: Any) -> BadRequest | None:
        for name, field in self._fields.items():
            if field.required and not getattr(outline, name):
                return MissingParameter(f"Missing required parameter: '{name}'.", param=name)
        return None

    def _error_in(self, name: str, raw: bytes) -> BadRequest | None:
        # A JSON text has at most as many values as commas and opening brackets, and one.
        if sum(map(raw.count, (b",", b"[", b"{"))) > MAX_EXPLAINED:
            return None
        try:
            return first_error(parse_json(raw), self._fields[name].type, name)
        except RecursionError as error:
            return _not_json(error)


def _not_json(error: Exception) -> InvalidJSON:
    """Why a body is no JSON object at all."""
    if isinstance(error, UnicodeDecodeError):
        return InvalidJSON(f"The request body is not valid UTF-8 (byte {error.start}).")
    if isinstance(error, RecursionError):
        return InvalidJSON("The request body is nested too deeply.")
    if isinstance(error, msgspec.ValidationError):
        return InvalidJSON("The request body must be a JSON object.")
    return InvalidJSON(f"The request body is not valid JSON: {error}.")


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
