"""Queries and bodies of requests, checked against the schemas of the table. Unknown names are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.amounts import parse_amount
from gateway.config.toml_reader import suggestion
from gateway.errors import InvalidValue, MissingParameter, UnknownParameter
from gateway.http_server.zero_character import refuse_zero, refuse_zero_in_json
from gateway.schemas.validation import BodyDecoder

#: Money in a body: text, because a JSON number is a binary fraction in most programs.
AMOUNT = r"^[+-]?[0-9]{1,12}(\.[0-9]{1,9})?$"

_AT = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)


def read_body(kind: type[Struct], content: bytes) -> Struct:
    """The body as `kind`; BadRequest names the field that is wrong. An empty body is an empty object."""
    refuse_zero_in_json(content)
    body: Struct
    body, fields = _decoder(kind).decode(content or b"{}")
    _refuse_unknown(fields, kind)
    return body


def read_query(kind: type[Struct] | None, values: Mapping[str, list[bytes]]) -> Struct | None:
    """The query as `kind`; BadRequest. Each name may be given once."""
    _refuse_unknown(values, kind)
    for name, found in values.items():
        if len(found) > 1:
            raise InvalidValue(f"Invalid '{name}': it is given {len(found)} times.", param=name)
    if kind is None:
        return None
    try:
        texts = {name: found[0].decode() for name, found in values.items()}
        refuse_zero({name: [text] for name, text in texts.items()})
        return msgspec.convert(texts, kind, strict=False)
    except msgspec.ValidationError as error:
        match = _AT.search(str(error))
        name, cause = match[1] if match else "", _AT.sub("", str(error))
        if cause.startswith("Object missing required field"):
            name = cause.split("`")[1]
            raise MissingParameter(f"Missing required parameter: '{name}'.", param=name) from None
        raise InvalidValue(f"Invalid '{name}': {cause}."[:300], param=name) from None
    except UnicodeDecodeError:
        raise InvalidValue("The query is not valid UTF-8") from None


def amount_of(text: str, param: str) -> int:
    """Nano-units of an amount in a body; InvalidValue."""
    try:
        return parse_amount(text)
    except ValueError as error:
        raise InvalidValue(f"Invalid '{param}': {error}.", param=param) from None


def _refuse_unknown(names: Iterable[str], kind: type[Struct] | None) -> None:
    known = [field.encode_name for field in structs.fields(kind)] if kind is not None else []
    for name in names:
        if name not in known:
            shown = name[:64].encode("utf-8", "replace").decode()
            raise UnknownParameter(f"Unknown parameter: '{shown}'{suggestion(name[:64], known)}.", param=shown)


@cache
def _decoder(kind: type[Struct]) -> BodyDecoder[Any]:
    return BodyDecoder(kind)
