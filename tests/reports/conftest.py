"""The gateway of the tests of the API before a scriptable upstream, with models in three more dialects on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream
from tests.api.conftest import client as client
from tests.api.conftest import upstream as upstream


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models on that server: m1 and two in OpenAI's dialect, claude, gemini and bedrock in theirs."""
    price = {"input": 1, "cached_input": "0.1", "cache_write": "1.25", "output": 2}
    one: dict[str, Any] = {"price": price, "retries": 0}
    twice = [{"provider": "up", "model": "first"}, {"provider": "up", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "up": {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"},
                "anthropic": {"plugin": "anthropic", "base_url": upstream.url, "api_key": "sk-ant-canary-01"},
                "gemini": {
                    "plugin": "gemini",
                    "base_url": f"{upstream.url}/v1beta",
                    "api_key": "AIzaSyCanary0123456789",
                },
                "bedrock": {
                    "plugin": "bedrock",
                    "base_url": upstream.url,
                    "region": "us-east-1",
                    "api_key": "bedrock-canary-01",
                },
            },
            "groups": {"default": {}},
            "models": {
                "m1": {**one, "provider": "up", "model": "upstream-m1"},
                "listener": {
                    "provider": "up",
                    "model": "upstream-t1",
                    "price": {"per_second_in": "0.01"},
                    "endpoints": ["transcription"],
                },
                "two": {"targets": twice, "price": price},
                "claude": {**one, "provider": "anthropic", "model": "claude-sonnet-4-5"},
                "gemini": {**one, "provider": "gemini", "model": "gemini-3-pro"},
                "bedrock": {**one, "provider": "bedrock", "model": "anthropic.claude-sonnet-4-5-20250929-v1:0"},
            },
        },
        demo=True,
    )
