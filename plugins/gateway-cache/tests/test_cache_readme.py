"""The configurations of the README, in a running gateway."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path

import msgspec

from gateway.testing import Reply, RunningGateway, Seen, background_upstream, running_gateway

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXACT, SEMANTIC = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PROVIDER = '[providers.fake]\nplugin = "fake"\n\n[groups.default]\n\n'
MODEL = '[models."gpt-5-mini"]\nprovider = "fake"\nmodel = "fake-chat"\nprice = { input = 1, output = 1 }\n'
EMBEDDING = """
[providers.up]
plugin = "openai"
base_url = "{url}/v1"

[models."text-embedding-3-small"]
provider = "up"
endpoints = ["embeddings"]
price = {{ input = 1 }}

"""


def configuration(url: str) -> str:
    exact: str = EXACT.replace("redis://127.0.0.1:6380", url).replace('[models."gpt-5-mini"]\n', MODEL)
    return PROVIDER + exact


def asked(gateway: RunningGateway, text: str = "Hello", **more: object) -> tuple[str | None, str]:
    """The name of the hook that answered, and the answer."""
    body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": text}], **more}
    headers = {"Authorization": f"Bearer {gateway.api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{gateway.base_url}/chat/completions", msgspec.json.encode(body), headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["x-gateway-answered-by"], answer.read().decode()


def wait_for_hit(gateway: RunningGateway, text: str = "Hello") -> None:
    """An answer is stored after the caller has had it."""
    end = time.monotonic() + 20
    while asked(gateway, text)[0] != "cache":
        assert time.monotonic() < end


def test_the_configuration_of_the_readme_serves(url: str) -> None:
    with running_gateway(configuration(url)) as gateway:
        assert asked(gateway)[0] is None
        wait_for_hit(gateway)
        by, text = asked(gateway, stream=True)
        assert by == "cache" and text.endswith("data: [DONE]\n\n") and "Hello" in text


def embeddings(seen: Seen) -> Reply:
    text = msgspec.json.decode(seen.body)["input"]
    vector = [1.0, 0.1] if "herons" in str(text) else [0.0, 1.0]
    usage = {"prompt_tokens": 2, "total_tokens": 2}
    return Reply.json(
        {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": vector}], "usage": usage}
    )


def test_a_near_question_is_answered_as_the_readme_says(url: str) -> None:
    """The hook asks the gateway itself for vectors, with a key that is made when it runs."""
    with background_upstream(embeddings) as up, running_gateway(configuration(url)) as gateway:
        key = gateway.folder / "key"
        key.write_text(gateway.api_key)
        near = SEMANTIC.replace("http://127.0.0.1:8080/v1", gateway.base_url).replace("env:CACHE_KEY", f"file:{key}")
        text = gateway.config.read_text().replace("timeout = 0.5", "timeout = 20.0")
        gateway.stop()
        gateway.config.write_text(f"{text}{EMBEDDING.format(url=up)}{near}")
        gateway.start()

        assert asked(gateway, "Tell me about herons")[0] is None
        wait_for_hit(gateway, "Tell me about herons")
        by, answer = asked(gateway, "What do you know about herons?")
        assert by == "cache" and "Tell me about herons" in answer
        assert asked(gateway, "Tell me about storks")[0] is None
