"""The configuration of the README, in a running gateway."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

import msgspec

from gateway.testing import running_gateway

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PROVIDER = '[providers.fake]\nplugin = "fake"\n\n[groups.default]\n\n'
MODEL = 'provider = "fake"\nmodel = "fake-chat"\nprice = { input = 1, output = 1 }\n'
JUDGE = """
[models."omni-moderation-latest"]
provider = "fake"
endpoints = ["moderation"]
free = true

"""


def test_the_configuration_of_the_readme_serves() -> None:
    toml, moderation = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    toml = toml.replace('[models."gpt-5-mini"]\n', f'[models."gpt-5-mini"]\n{MODEL}')

    def asked(text: str) -> str:
        body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": text}]}
        headers = {"Authorization": f"Bearer {gateway.api_key}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{gateway.base_url}/chat/completions", msgspec.json.encode(body), headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return str(msgspec.json.decode(answer.read())["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            return str(msgspec.json.decode(error.read())["error"]["code"])

    with running_gateway(PROVIDER + toml) as gateway:
        assert asked("pay 1234 5678 1234 5678 by AKIAIOSFODNN7EXAMPLE") == "You said: pay [card] by [removed]"
        assert asked("about Project Kestrel") == "guarded"

        key = gateway.folder / "key"
        key.write_text(gateway.api_key)
        moderation = moderation.replace("http://127.0.0.1:8080/v1", gateway.base_url).replace(
            "env:GUARD_KEY", f"file:{key}"
        )
        gateway.stop()
        gateway.config.write_text(f"{gateway.config.read_text()}{JUDGE}{moderation}")
        gateway.start()
        assert asked("about a bird") == "You said: about a bird"
        assert asked("I will kill it") == "guarded"
