"""botocore's model of Bedrock's API as a judge of our requests: shapes, limits, patterns, words, bytes on the wire."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import botocore.session
import msgspec
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator


@cache
def operation(name: str) -> Any:
    """Converse or ConverseStream."""
    return botocore.session.get_session().get_service_model("bedrock-runtime").operation_model(name)


def faults(body: bytes, *, model: str, name: str) -> list[str]:
    """What botocore's model says against a request of ours; empty when it is one."""
    shape = operation(name).input_shape
    try:
        given = {**_with_bytes(shape, msgspec.json.decode(body)), "modelId": model}
    except (KeyError, ValueError) as error:
        return [f"{type(error).__name__}: {error}"]
    report = ParamValidator().validate(given, shape)
    found = [*_limits(shape, given, "body"), *([report.generate_report()] if report.has_errors() else [])]
    if not found:
        sent = create_serializer("rest-json").serialize_to_request(given, operation(name))
        if msgspec.json.decode(sent["body"]) != msgspec.json.decode(body):
            found.append(f"botocore would send {sent['body']!r}")
    return found


def url_path(model: str, name: str) -> str:
    """The path that botocore would send a request for `model` to."""
    given = {"modelId": model, "messages": []}
    path = create_serializer("rest-json").serialize_to_request(given, operation(name))["url_path"]
    assert isinstance(path, str)
    return path


def _with_bytes(shape: Any, value: Any) -> Any:
    """`value` with bytes where the wire has base64; a key that the shape does not know is a KeyError."""
    if shape.metadata.get("document"):
        return value
    if shape.type_name == "structure":
        return {name: _with_bytes(shape.members[name], inner) for name, inner in value.items()}
    if shape.type_name == "list":
        return [_with_bytes(shape.member, inner) for inner in value]
    return base64.b64decode(value, validate=True) if shape.type_name == "blob" else value


def _limits(shape: Any, value: Any, path: str) -> Iterator[str]:
    """Words, patterns and upper limits, which botocore knows and leaves to the server to check."""
    if shape.metadata.get("document"):
        return
    if shape.type_name == "structure":
        for name, inner in value.items():
            yield from _limits(shape.members[name], inner, f"{path}.{name}")
    elif shape.type_name == "list":
        for position, inner in enumerate(value):
            yield from _limits(shape.member, inner, f"{path}[{position}]")
    elif shape.type_name == "map":
        for name, inner in value.items():
            yield from _limits(shape.key, name, f"{path} key")
            yield from _limits(shape.value, inner, f"{path}[{name!r}]")
    known, pattern, most = shape.metadata.get("enum"), shape.metadata.get("pattern"), shape.metadata.get("max")
    if known and value not in known:
        yield f"{path}: {value!r} is none of {known}"
    if pattern and isinstance(value, str) and not path.endswith(".modelId") and not re.fullmatch(pattern, value):
        yield f"{path}: {value!r} does not match {pattern}"
    if most is not None and (value if isinstance(value, int | float) else len(value)) > most:
        yield f"{path}: over {most}"
