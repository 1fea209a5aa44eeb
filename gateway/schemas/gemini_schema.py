"""Google's schemas as JSON Schema: types in capitals, `nullable`, and limits as texts become what others read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.errors import InvalidJSON
from gateway.schemas.chat_rules import json_object
from gateway.schemas.gemini_contents import Opaque
from gateway.schemas.schema_errors import invalid

_LIMITS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_LEFT_OUT = frozenset({"nullable", "propertyOrdering", "property_ordering"})
_LISTS = frozenset({"anyOf", "any_of", "prefixItems"})
_TABLES = frozenset({"properties", "$defs", "defs"})
_SCHEMAS = frozenset({"items", "additionalProperties"})
_CAMEL: Mapping[str, str] = {
    "any_of": "anyOf",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "additional_properties": "additionalProperties",
    "prefix_items": "prefixItems",
}


def json_schema(google: Opaque, plain: Opaque, path: str, plain_path: str) -> Raw | None:
    """The JSON Schema of a field that takes both notations; None where neither was sent. `plain` counts first."""
    written = json_object(plain, plain_path)
    if written is not UNSET:
        return written
    schema = json_object(google, path)
    if schema is UNSET:
        return None
    try:
        return Raw(msgspec.json.encode(_schema(msgspec.json.decode(schema))))
    except RecursionError:
        raise InvalidJSON("The request body is nested too deeply.") from None
    except msgspec.MsgspecError:
        raise invalid(path, "a number in it is out of range") from None


def _schema(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    out: dict[str, Any] = {}
    for sent, value in node.items():
        name = _CAMEL.get(sent, sent)
        if name == "type":
            kind = _type(value, nullable=node.get("nullable") is True)
            out |= {} if kind is None else {"type": kind}
        elif name in _LIMITS and isinstance(value, str) and value.isdecimal():
            out[name] = int(value[:20])
        elif name in _LISTS and isinstance(value, list):
            out[name] = [_schema(one) for one in value]
        elif name in _TABLES and isinstance(value, dict):
            out[name] = {key: _schema(one) for key, one in value.items()}
        elif name not in _LEFT_OUT:
            out[name] = _schema(value) if name in _SCHEMAS else value
    return out


def _type(value: Any, *, nullable: bool) -> Any:
    if not isinstance(value, str):
        return value
    if value == "TYPE_UNSPECIFIED":
        return None
    kind = value.lower() if value.isupper() else value
    return [kind, "null"] if nullable else kind
