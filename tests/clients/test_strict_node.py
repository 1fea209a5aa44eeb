"""Clients for Node that read answers by Zod schemas, over upstreams of three dialects, each answer whole and streamed.

They are the AI SDK's providers for Open Responses, OpenAI's Responses and chat completions, Messages and Gemini.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gateway.testing import background_upstream, running_gateway
from gateway.testing.servers.situations import ASK, TOOL
from tests.dialects.test_conformance import modelled
from tests.polling import ENDS_WITHIN

pytestmark = pytest.mark.clients

CONFIG = """
[providers.chat]
plugin = "openai"
base_url = "{url}/v1"
api_key = "file:{key}"

[providers.messages]
plugin = "anthropic"
base_url = "{url}"
api_key = "file:{key}"

[providers.gemini]
plugin = "gemini"
base_url = "{url}/v1beta"
api_key = "file:{key}"

[groups.default]
"""
MODEL = """
[models.{name}]
provider = "{name}"
model = "{model}"
price = {{ input = 1, output = 2 }}
"""
MODELS = {"chat": "up", "messages": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}


def test_clients_with_schemas_read_every_answer(node_folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("upstream-key")
    with background_upstream(modelled) as url:
        config = CONFIG.format(url=url, key=key) + "".join(
            MODEL.format(name=name, model=model) for name, model in MODELS.items()
        )
        with running_gateway(config) as gateway:
            environment = {"OPENAI_BASE_URL": gateway.base_url, "OPENAI_API_KEY": gateway.api_key, "ASK": ASK}
            done = subprocess.run(
                ["node", "strict.mjs", *MODELS],
                cwd=node_folder,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=ENDS_WITHIN,
            )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen) == 3 * 5 * 2 * 2
    for place, answer in seen.items():
        calls = [[TOOL, {"city": "Oslo"}]] if " tool " in place else []
        assert answer == {"text": "Hello, dear world!", "finishReason": "stop", "calls": calls}, place
