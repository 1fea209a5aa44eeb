"""A gateway with a model on each dialect of upstreams, all at one scripted server."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream
from tests.api.conftest import client as client
from tests.api.conftest import taken as taken
from tests.api.conftest import upstream as upstream

UPSTREAMS = ("chat", "responses", "messages", "gemini", "bedrock")


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model for each upstream: `m-chat` and so on."""
    root = upstream.base_url.removesuffix("/v1")
    key = {"api_key": "upstream-key"}
    price = {"input": 1, "output": 2}
    names = {
        "messages": "claude-sonnet-4-5",
        "gemini": "gemini-2.5-pro",
        "bedrock": "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    }
    models = {
        f"m-{name}": {"provider": name, "model": names.get(name, "up"), "price": price, "retries": 0}
        for name in UPSTREAMS
    }
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "chat": {"plugin": "openai", "base_url": upstream.base_url, **key},
                "responses": {"plugin": "openai", "base_url": upstream.base_url, "responses": True, **key},
                "messages": {"plugin": "anthropic", "base_url": root, **key},
                "gemini": {"plugin": "gemini", "base_url": f"{root}/v1beta", **key},
                "bedrock": {"plugin": "bedrock", "base_url": root, "region": "eu-west-1", **key},
            },
            "groups": {"default": {}},
            "models": models,
        },
        demo=True,
    )
