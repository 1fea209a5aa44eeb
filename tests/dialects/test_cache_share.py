"""A session of ten turns reads as much from the vendor's prompt cache through the gateway as it does directly."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from gateway.testing import FakeUpstream, Reply, Seen
from tests.api.conftest import Client as Http

from .answers import Answer, Call, reply
from .clients import Got
from .conftest import UPSTREAMS
from .prompt_caches import Counted, PromptCache
from .sessions import OPENAI_MARK, ChatSession, GeminiSession, MessagesSession, ResponsesSession, Session

TURNS = 10
SESSIONS: dict[str, Callable[[], Session]] = {
    "chat": lambda: ChatSession(OPENAI_MARK),
    "responses": ResponsesSession,
    "messages": MessagesSession,
    "gemini": GeminiSession,
}
#: The client that the vendor's own SDK would be, with the marks that its API has.
DIRECT: dict[str, Callable[[], Session]] = {
    "chat": lambda: ChatSession({}),
    "responses": ResponsesSession,
    "messages": MessagesSession,
    "gemini": GeminiSession,
    "bedrock": MessagesSession,  # its caches are those of Claude
}


class Vendor:
    """A model behind a prompt cache: each second turn it calls two tools first."""

    def __init__(self) -> None:
        self.cache = PromptCache()
        self.counted: list[Counted] = []

    def answer(self, seen: Seen) -> Reply:
        number = len(self.counted)
        counted = self.cache.count(seen)
        self.counted.append(counted)
        calls = (Call("tide", {"port": "Brest", "when": "now"}), Call("ship", {"port": f"port {number}"}))
        answer = Answer(f"Answer {number}.") if number % 3 else Answer(f"Look {number}.", calls, first_call=2 * number)
        tokens = {"tokens_in": counted.prompt, "cached": counted.cached, "written": counted.written}
        return reply(structs.replace(answer, **tokens), seen)


Send = Callable[[str, dict[str, Any]], Awaitable[str]]


async def run(session: Session, model: str, send: Send, *, stream: bool = False) -> list[tuple[int, int]]:
    """Tokens of the prompt, and those of them from the cache, of each request as the client reads them."""
    told = []
    for turn in range(TURNS):
        session.say(f"Question {turn}.")
        got = Got(calls=[("", "", {})])
        while got.calls:
            path, body = session.body(model)
            if stream and "contents" in body:
                path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
            elif stream:
                body["stream"] = True
            if stream and path.endswith("/chat/completions"):
                body["stream_options"] = {"include_usage": True}
            got = session.client.read(await send(path, body), stream=stream)
            told.append(got.tokens[:2])
            session.carry(got)
    return told


async def direct(api: str) -> list[tuple[int, int]]:
    """The same without a gateway between."""
    vendor = Vendor()

    async def send(path: str, body: dict[str, Any]) -> str:
        seen = Seen(method="POST", path=path, headers={}, body=json.dumps(body).encode())
        return vendor.answer(seen).body.decode()

    return await run(DIRECT[api](), "up", send)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", UPSTREAMS)
async def test_session_reads_as_much_from_the_cache_as_directly(
    client: Http, upstream: FakeUpstream, api: str, stream: bool
) -> None:
    wanted = await direct(api)
    assert len(wanted) > TURNS and all(cached > prompt // 2 for prompt, cached in wanted[1:])

    async def send(path: str, body: dict[str, Any]) -> str:
        async with client.request("POST", path, json=body) as response:
            text = await response.text()
            assert response.status == 200, text
            return text

    for dialect, session in SESSIONS.items():
        vendor = Vendor()
        upstream.answer = vendor.answer
        told = await run(session(), f"m-{api}", send, stream=stream)
        counted = [(one.prompt, one.cached) for one in vendor.counted]
        assert told == counted, f"the client of {dialect} is told something else than the vendor counted"
        # Gemini's API has no marks, without which Claude caches nothing.
        has_cache = dialect != "gemini" or api not in {"messages", "bedrock"}
        assert told == [(prompt, cached if has_cache else 0) for prompt, cached in wanted], dialect
