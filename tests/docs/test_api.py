"""docs/api.md names every path with its methods and every header, and nothing that is none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.api.handler import allowed_methods
from gateway.api.routes import PATHS, PREFIXES
from gateway.config.settings import ServerLimitSettings
from gateway.ids import Ids, request_id, tool_call_id
from gateway.inference import idempotency
from gateway.schemas.chat_response import FINISH_REASONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
HEADER = re.compile(r"(x|X|openai|anthropic|api|retry|Retry|WWW|Idempot[a-z]+)(-[A-Za-z]+)+")


def test_page_has_a_section_for_each_route_with_its_methods_and_no_other() -> None:
    shown = {
        (method, re.sub(r"\{\w+\}$", "", path))
        for method, path in re.findall(r"^## ([A-Z]+) (/.*)$", PAGE, re.MULTILINE)
    }
    served = {
        (method, path)
        for path, route in {**PATHS, **PREFIXES}.items()
        for method in allowed_methods(route.handler)
        if method != "HEAD"  # answered wherever GET is
    } | {("POST", f"/v1beta/models/{{model}}:{name}") for name in PREFIXES["/v1beta/models/"].methods}
    assert shown == served


def test_head_is_answered_on_every_route_with_get() -> None:
    for path, route in {**PATHS, **PREFIXES}.items():
        assert ("HEAD" in allowed_methods(route.handler)) == ("GET" in allowed_methods(route.handler)), path


def _headers_in_the_sources() -> Iterator[tuple[str, Path]]:
    files = [*(ROOT / "gateway" / "api").rglob("*.py")]
    files += [
        ROOT / "gateway" / name
        for name in (
            "errors/__init__.py",
            "errors/base.py",
            "inference/sinks.py",
            "inference/pipeline.py",
            "inference/call_hold.py",
            "http_server/reply.py",
            "ledger/limits.py",
        )
    ]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and HEADER.fullmatch(node.value):
                yield node.value, path


def test_every_header_in_the_sources_is_on_the_page() -> None:
    found = list(_headers_in_the_sources())
    assert {"x-request-id", "x-gateway-cost", "Idempotency-Key"} <= {name for name, _ in found}
    for name, path in found:
        assert f"`{name}`" in PAGE, (name, path)


def test_every_header_on_the_page_is_in_the_sources() -> None:
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "gateway").rglob("*.py"))
    for row in re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", row):
            assert f'"{name}"' in written, name


def test_examples_are_json_and_bounds_are_the_bounds() -> None:
    examples = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert [msgspec.json.decode(example)["object"] for example in examples] == [
        "model",
        "balance",
        "usage",
        "receipt",
        "file",
    ]
    assert (idempotency.MAX_ANSWER, ServerLimitSettings().max_kept_answers) == (1 << 20, 64 << 20)
    assert "up to 1 MiB" in PAGE
    assert "up to `max_kept_answers` (64 MiB)" in PAGE


def test_chat_section_names_every_finish_reason_and_the_ids_as_the_gateway_makes_them() -> None:
    section = PAGE.split("## POST /v1/chat/completions\n", 1)[1].split("\n## ", 1)[0]
    assert all(f"`{reason}`" in section for reason in FINISH_REASONS)
    for made, told in (
        (Ids().completion_id(request_id()), r"`(chatcmpl-)` and\s+(\d+)\s+letters and\s+digits"),
        (tool_call_id(), r"`(call_)` and\s+(\d+)\s+letters and\s+digits"),
    ):
        found = re.search(told, section)
        assert found is not None
        assert re.fullmatch(rf"{found[1]}[A-Za-z0-9]{{{found[2]}}}", made)
