"""Checks a JSON document against a schema of an OpenAPI document: the keywords that these schemas have, and no others.

A property that the schema does not name is a fault, so that the schemas stay complete.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "object": (dict,), "array": (list,),
}  # fmt: skip
NOTES = {"title", "description", "examples", "default", "format"}
SIZES = {"minItems", "maxItems", "minLength", "maxLength"}
KNOWN = {
    *NOTES, *SIZES, "type", "$ref", "anyOf", "properties", "required", "additionalProperties", "items", "enum",
    "pattern", "minimum", "maximum",
}  # fmt: skip


def faults(document: Any, schema: dict[str, Any], components: dict[str, Any], path: str = "$") -> Iterator[str]:
    """What is wrong with the document."""
    assert not set(schema) - KNOWN, f"{path}: {set(schema) - KNOWN}"
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        yield from faults(document, components[name], components, path)
        return
    if "anyOf" in schema:
        if not any(not list(faults(document, one, components, path)) for one in schema["anyOf"]):
            yield f"{path}: {document!r} is none of {schema['anyOf']}"
        return
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(type(document) in TYPES[kind] for kind in kinds):
        yield f"{path}: {document!r} is no {kinds}"
        return
    if "enum" in schema and document not in schema["enum"]:
        yield f"{path}: {document!r} is not in {schema['enum']}"
    if isinstance(document, str) and not re.search(schema.get("pattern", ""), document):
        yield f"{path}: {document!r} does not match {schema['pattern']}"
    if type(document) in (int, float) and not schema.get("minimum", -math.inf) <= document <= schema.get(
        "maximum", math.inf
    ):
        yield f"{path}: {document!r} is out of bounds"
    what = "Items" if isinstance(document, list) else "Length" if isinstance(document, str) else ""
    if what and not schema.get(f"min{what}", 0) <= len(document) <= schema.get(f"max{what}", math.inf):
        yield f"{path}: {document!r} has a wrong length"
    if isinstance(document, list):
        for index, item in enumerate(document):
            yield from faults(item, schema.get("items", {}), components, f"{path}[{index}]")
    if isinstance(document, dict):
        yield from _object_faults(document, schema, components, path)


def _object_faults(document: dict[str, Any], schema: dict[str, Any], components: Any, path: str) -> Iterator[str]:
    named = schema.get("properties")
    others = schema.get("additionalProperties", {} if named is None else None)
    for name in schema.get("required", []):
        if name not in document:
            yield f"{path}.{name} is missing"
    for name, value in document.items():
        if named is not None and name in named:
            yield from faults(value, named[name], components, f"{path}.{name}")
        elif others is None:
            yield f"{path}.{name} is not in the schema"
        else:
            yield from faults(value, others if isinstance(others, dict) else {}, components, f"{path}.{name}")
