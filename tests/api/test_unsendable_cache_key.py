"""A `prompt_cache_key` that no header can carry is left out of the call to a server that wants a header, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client
from tests.inference.test_continuation import chunk

HEADER = "x-session-affinity"


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    plain = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    model = {"price": {"input": 1, "output": 2}}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"header": {**plain, "session_header": HEADER}, "body": plain},
            "models": {
                "header": {**model, "provider": "header"},
                "unbound": {**model, "provider": "header", "affinity": "none"},
                "body": {**model, "provider": "body"},
            },
        },
        demo=True,
    )


@pytest.mark.holds("providers/openai.md#presets-2")
@pytest.mark.parametrize(
    ("model", "key", "is_left_out"),
    [
        ("header", "a b", True),
        ("header", "é", True),
        ("header", "x" * 257, True),
        ("unbound", "a b", True),
        ("header", "talk-1", False),
        ("body", "a b", False),
    ],
)
async def test_key_that_no_header_can_have_is_named(
    client: Client, upstream: FakeUpstream, model: str, key: str, is_left_out: bool
) -> None:
    upstream.enqueue(Reply.stream([chunk({"content": "Hi"}), chunk({}, finish="stop")]))
    response, _, failure = await client.stream(model=model, prompt_cache_key=key)
    assert failure is None
    assert response.headers.get("x-gateway-dropped-params") == ("prompt_cache_key" if is_left_out else None)
    [sent] = upstream.seen
    assert sent.json.get("prompt_cache_key") == (key if model == "body" else None)
    session = sent.headers.get(HEADER)
    if model == "header" and is_left_out:
        assert session and session != key, "the gateway's own name of the session takes its place"
    else:
        assert session == (key if model == "header" else None)
