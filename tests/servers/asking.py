"""Questions to the gateway before a real server, to the server itself, and to the gateway's command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import aiohttp

from gateway.testing import RunningGateway
from gateway.testing.running import ACCOUNT
from tests.dialects.clients import Client, Question

from .model_server import ModelServer

SYSTEM = "Be short."  # of each client
LIMIT = 60  # tokens
PROMPTS = [f"Tell me about {what}." for what in ("herons", "the sea", "42", "caf\u00e9s \u2615", "a", "x" * 200)]


class Asked:
    """The answer to one request."""

    def __init__(self, status: int, text: str, headers: Any) -> None:
        self.status, self.text, self.headers = status, text, headers

    @property
    def json(self) -> Any:
        """The document."""
        return json.loads(self.text)


async def ask(served: RunningGateway, path: str, body: Any, **headers: str) -> Asked:
    """Ask the gateway."""
    sent = {"Authorization": f"Bearer {served.api_key}", "anthropic-version": "2023-06-01", **headers}
    url = served.base_url.removesuffix("/v1") + path
    async with aiohttp.ClientSession(headers=sent) as session, session.post(url, json=body) as response:
        return Asked(response.status, await response.text(), response.headers)


def at_zero(dialect: Client, model: str, question: Question, *, stream: bool) -> tuple[str, Any]:
    """The request of a client, with the temperature 0 and the limit."""
    path, body = dialect.ask(model, question, stream=stream)
    if dialect.name == "gemini":
        body["generationConfig"] = {**body.get("generationConfig", {}), "temperature": 0, "maxOutputTokens": LIMIT}
    else:
        body |= {"temperature": 0, "max_output_tokens" if dialect.name == "responses" else "max_tokens": LIMIT}
    return path, body


def hi(model: str, **more: Any) -> dict[str, Any]:
    """A short chat request."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]
    return {"model": model, "messages": messages, "max_tokens": 40, "temperature": 0, **more}


def direct(server: ModelServer, text: str, **more: Any) -> Any:
    """The same question to the server itself."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    body = {"model": server.model, "messages": messages, "temperature": 0, "max_tokens": LIMIT, **more}
    return server.ask("/v1/chat/completions", body)


async def check_texts(
    served: RunningGateway, server: ModelServer, model: str, dialect: Client, *, stream: bool, told: bool = True
) -> None:
    """Texts, finish reasons and counts are those of direct calls; `told`: the server says that the limit cut one."""
    for text in PROMPTS:
        theirs = direct(server, text)
        answered = await ask(served, *at_zero(dialect, model, Question(text=text), stream=stream))
        assert answered.status == 200, answered.text
        got, choice = dialect.read(answered.text, stream=stream), theirs["choices"][0]
        assert got.text == choice["message"]["content"]
        is_cut = told and choice["finish_reason"] == "length"
        assert got.finish == dialect.words["length" if is_cut else "stop"]
        usage = theirs["usage"]
        assert (got.tokens[0], got.tokens[2]) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert "temperature" not in answered.headers.get("x-gateway-dropped-params", "")


async def check_too_long(served: RunningGateway, model: str, dialect: Client, *, stream: bool) -> None:
    """A prompt beyond a window of 2,048 tokens is told as such."""
    path, body = dialect.ask(model, Question(text="word " * 600), stream=stream)
    answered = await ask(served, path, body)
    assert answered.status == 400, answered.text
    said = answered.text.lower()
    assert "context_length_exceeded" in said or "prompt is too long" in said, answered.text


def command(served: RunningGateway, *words: str) -> str:
    """What `gateway …` prints for this gateway."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gateway", *words, "--config", str(served.config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def charges(served: RunningGateway) -> list[dict[str, Any]]:
    """The ledger lines of calls, oldest first."""
    lines = json.loads(command(served, "usage", "list", ACCOUNT, "--json"))
    return [line for line in lines if line["kind"] == "use"]
