"""Every target, by the name of its module, which is imported when the target is made."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.engine import Target

TARGETS = {
    "sse": "SseTarget",
    "http_parser": "ParserTarget",
    "http_server": "ServerTarget",
    "http_client": "ClientTarget",
    "multipart": "MultipartTarget",
    "inflation": "InflationTarget",
    "usage": "UsageTarget",
    "scripts": "ScriptsTarget",
}


def new_target(name: str) -> Target:
    """The target of that name."""
    target: Target = getattr(import_module(f"tests.fuzz.{name}"), TARGETS[name])()
    return target
