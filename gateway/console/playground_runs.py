"""Calls of the playground: through `/v1` of this gateway, as lines of JSON for the page's script.

The lines of a call: `{"request_id"}` when the answer begins, `{"text"}` and `{"reasoning"}` for each piece, and at the
end `{"end": reason}` or `{"error": message}`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, aclosing
from ssl import SSLContext
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.errors import GatewayError
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Answer, Upstream
from gateway.web.places import Places

MOST_OF_USER = 8  # calls at the same time
TIMEOUTS = Timeouts(connect=5.0, first_byte=600.0, idle=600.0, total=3600.0)  # the gateway's own are shorter
DONE = b"[DONE]"


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn."""

    role: Literal["system", "user", "assistant"]
    content: str


class Run(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the page asks for; the names are those of the API."""

    model: str
    messages: list[Message]
    temperature: float | None = None
    max_tokens: int | None = None


class PlaygroundRuns:
    """The calls that run in this process, counted by user."""

    def __init__(self) -> None:
        self._places = Places()

    def place(self, user_id: str) -> AbstractContextManager[None]:
        """Count a call while it runs; TooManyRequests."""
        refusal = "You have too many calls running in the playground"
        return self._places.place(user_id, most=MOST_OF_USER, refusal=refusal)


async def run_lines(url: str, key: str, run: Run, *, tls: SSLContext | None = None) -> AsyncGenerator[bytes]:
    """Call the model, and stop the call if the generator is closed. `tls`: for an https address."""
    async with aclosing(_lines(url, key, run, tls)) as lines:
        async for line in lines:
            yield msgspec.json.encode(line) + b"\n"


async def _lines(url: str, key: str, run: Run, tls: SSLContext | None) -> AsyncGenerator[dict[str, Any]]:
    body = msgspec.json.encode({**msgspec.to_builtins(run), "stream": True})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "User-Agent": "model-gateway"}
    client = Upstream(keepalive=0.0, tls=tls)
    try:
        async with await client.send(
            "POST", f"{url}/chat/completions", headers=headers, body=body, timeouts=TIMEOUTS
        ) as answer:
            yield {"request_id": answer.headers.get("x-request-id") or ""}
            if answer.status != 200:
                yield {"error": _message(await answer.read(limit=2**20))}
                return
            async for line in _pieces(answer):
                yield line
    except GatewayError:
        yield {"error": "The connection to the gateway broke"}
    finally:
        await client.close()


async def _pieces(answer: Answer) -> AsyncGenerator[dict[str, Any]]:
    reason = ""
    while events := await answer.read_events():
        for event in events:
            if event.data == DONE:
                continue
            chunk = msgspec.json.decode(event.data)
            if "error" in chunk:
                yield {"error": str(chunk["error"].get("message", ""))}
                return
            for choice in chunk.get("choices", ()):
                reason = choice.get("finish_reason") or reason
                for line in _texts(choice.get("delta", {})):
                    yield line
    yield {"end": reason}


def _texts(delta: dict[str, Any]) -> Iterator[dict[str, str]]:
    for field, name in (("reasoning_content", "reasoning"), ("reasoning", "reasoning"), ("content", "text")):
        if isinstance(text := delta.get(field), str) and text:
            yield {name: text}


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return "The gateway refused the call"
