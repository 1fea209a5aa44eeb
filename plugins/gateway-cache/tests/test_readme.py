"""The configuration of the README, in a running gateway."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path

import msgspec
import pytest

from gateway.testing import running_gateway

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PROVIDER = '[providers.fake]\nplugin = "fake"\n\n[groups.default]\n\n'
MODEL = 'provider = "fake"\nmodel = "fake-chat"\nprice = { input = 1, output = 1 }\n'


@pytest.mark.slow
def test_the_configuration_of_the_readme_serves(url: str) -> None:
    (toml, _) = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    toml = toml.replace("redis://127.0.0.1:6380", url).replace(
        '[models."gpt-5-mini"]\n', f'[models."gpt-5-mini"]\n{MODEL}'
    )

    def asked(**more: object) -> tuple[str | None, str]:
        body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hello"}], **more}
        headers = {"Authorization": f"Bearer {gateway.api_key}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{gateway.base_url}/chat/completions", msgspec.json.encode(body), headers=headers
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.headers["x-gateway-answered-by"], answer.read().decode()

    with running_gateway(PROVIDER + toml) as gateway:
        assert asked()[0] is None
        end = time.monotonic() + 20
        while asked()[0] != "cache":  # it is stored after the answer
            assert time.monotonic() < end
        by, text = asked(stream=True)
        assert by == "cache" and text.endswith("data: [DONE]\n\n") and "Hello" in text
