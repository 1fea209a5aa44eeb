"""Clients of the fleet: the SDKs of OpenAI and Anthropic with their own retries, and a browser in the console.

An SDK tries a call up to three times. So there are two counts: attempts, which are requests as the proxy sees them, and
calls, which are what a program with the SDK gets. The name of a call is its system text, by which the upstream's log
knows it, and each attempt has a name of its own in the header `X-Attempt`, by which nginx's log knows it.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx2
import openai

from tests.chaos.traffic import CHUNK
from tests.fleet.calls import Attempt, Call, end_attempt

TIMEOUT = 20.0  # seconds for which a client waits for the next byte
CONNECT = 5.0
WORDS = 12  # of a chat
SESSION_WORDS = 10
LIMITED = {"agent", "rpm", "prepaid"}  # kinds of calls that reach a limit sometimes
BATCH = 32  # texts of one request for embeddings


class Recorder:
    """Notes each request of the call that its header names: hooks of an HTTP client."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}

    @property
    def hooks(self) -> dict[str, list[Callable[[Any], Awaitable[None]]]]:
        """For `event_hooks` of the client."""
        return {"request": [self._sent], "response": [self._answered]}

    async def _sent(self, request: Any) -> None:
        call = self.calls[request.headers["x-call"]]
        now = time.monotonic()
        end_attempt(call, now, "no answer")
        call.attempts.append(Attempt("try-" + secrets.token_hex(8), now))
        request.headers["x-attempt"] = call.attempts[-1].name

    async def _answered(self, response: Any) -> None:
        attempt = self.calls[response.request.headers["x-call"]].attempts[-1]
        attempt.status = response.status_code
        attempt.request_id = response.headers.get("x-request-id", "")
        if response.status_code != 200:
            attempt.ended = time.monotonic()
            attempt.failure = f"HTTP {response.status_code}" if response.status_code >= 500 else ""


class Load:
    """All clients, until `ended`; `calls` are those that have ended."""

    def __init__(self, url: str, trust: ssl.SSLContext) -> None:
        self._url = url
        self._recorder = Recorder()
        self._http = httpx2.AsyncClient(
            verify=trust, timeout=httpx2.Timeout(TIMEOUT, connect=CONNECT), event_hooks=self._recorder.hooks
        )
        self.calls: list[Call] = []
        self.over = False
        self._tasks: list[asyncio.Task[None]] = []

    # SDKs ------------------------------------------------------------------------------------------------------------

    def openai_sdk(self, key: str) -> openai.AsyncOpenAI:
        """OpenAI's SDK with a key."""
        return openai.AsyncOpenAI(
            api_key=key, base_url=f"{self._url}/v1", http_client=self._http, timeout=self._http.timeout
        )

    def anthropic_sdk(self, key: str) -> anthropic.AsyncAnthropic:
        """Anthropic's SDK with a key."""
        return anthropic.AsyncAnthropic(
            api_key=key, base_url=self._url, http_client=self._http, timeout=self._http.timeout
        )

    async def chat(
        self, sdk: openai.AsyncOpenAI, account: str, *, stream: bool, kind: str = "", words: int = WORDS
    ) -> Call:
        """One chat, whole or as a stream."""
        call = Call(kind or ("stream" if stream else "chat"), account, words)
        messages: Any = [{"role": "system", "content": call.name}, {"role": "user", "content": CHUNK * words}]

        async def make() -> None:
            answer: Any = await sdk.chat.completions.create(
                model="m", messages=messages, stream=stream, max_tokens=words, extra_headers={"x-call": call.name}
            )
            if not stream:
                assert answer.usage.completion_tokens == words
                return
            finish = None
            async for chunk in answer:
                finish = finish or (chunk.choices[0].finish_reason if chunk.choices else None)
            if finish is None:
                raise EOFError

        return await self._made(call, make)

    async def message(self, sdk: anthropic.AsyncAnthropic, account: str, session: str, *, stream: bool) -> Call:
        """One turn of an agent."""
        call = Call("agent", account, SESSION_WORDS)
        headers = {"x-call": call.name, "x-gateway-session": session}
        request: dict[str, Any] = {
            "model": "m",
            "system": call.name,
            "max_tokens": SESSION_WORDS,
            "messages": [{"role": "user", "content": CHUNK * SESSION_WORDS}],
            "extra_headers": headers,
        }

        async def make() -> None:
            if not stream:
                await sdk.messages.create(**request)
                return
            stop = None
            async for event in await sdk.messages.create(**request, stream=True):
                stop = stop or event.type == "message_stop"
            if not stop:
                raise EOFError

        return await self._made(call, make)

    async def batch(self, sdk: openai.AsyncOpenAI, account: str) -> Call:
        """Embeddings of many texts in one request."""
        call = Call("batch", account, 0)
        texts = [call.name, *["one two three"] * (BATCH - 1)]
        call.words = 1 + 3 * (BATCH - 1)

        async def make() -> None:
            answer = await sdk.embeddings.create(
                model="embed", input=texts, encoding_format="float", extra_headers={"x-call": call.name}
            )
            assert len(answer.data) == BATCH

        return await self._made(call, make)

    async def _made(self, call: Call, make: Callable[[], Awaitable[None]]) -> Call:
        self._recorder.calls[call.name] = call
        try:
            await make()
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            call.refused = error.status_code in (402, 429) and call.kind in LIMITED
            call.failure = "" if call.refused else f"HTTP {error.status_code}"
        except (openai.APIError, anthropic.APIError, httpx2.HTTPError, EOFError) as error:
            call.failure = type(error.__cause__ or error).__name__
        finally:
            del self._recorder.calls[call.name]
            call.ended = time.monotonic()
            end_attempt(call, call.ended, call.failure)
            self.calls.append(call)
        return call

    # Beginning and end -----------------------------------------------------------------------------------------------

    def keep(self, make: Callable[[], Awaitable[object]], *, pause: float, count: int = 1) -> None:
        """So many clients that do it again and again, with a pause between."""

        async def repeated() -> None:
            while not self.over:
                await make()
                await asyncio.sleep(pause)

        self._tasks += [asyncio.create_task(repeated()) for _ in range(count)]

    async def ended(self) -> None:
        """No more calls, and those that run are over."""
        self.over = True
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()
