"""A provider for a vendor that is not like OpenAI: sign-in, uploads, a job, and its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import ClassVar

from msgspec import Struct

from gateway import (
    Answer,
    Chat,
    ChatChunk,
    ChatRequest,
    Multipart,
    Provider,
    Secret,
    Target,
    Timeouts,
    hookimpl,
    raise_for_status,
)
from gateway.errors import GatewayError, UpstreamTruncated

from .dialect import JSON, chunk_of, headers_of, image_of, image_urls, job_of, read_document
from .session import Session

CANCEL = Timeouts(connect=2.0, first_byte=2.0, idle=2.0, total=2.0)  # below the 5 seconds of `close`
CLOSE_WITHIN = 4.0  # seconds; the same


class Created(Struct):
    """The vendor's answer to an upload or to a new job."""

    id: str


class JobProvider(Provider, Chat):
    """Signs in, uploads the images, creates a job, and reads its events."""

    name = "jobs"
    chat_fields: ClassVar[frozenset[str] | None] = frozenset({"temperature", "image_url"})

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [providers.NAME]."""

        base_url: str
        api_key: Secret

    async def start(self) -> None:
        """Read the key; the first call signs in, so that the gateway starts without the vendor."""
        self._url = self.options.base_url
        self._key = self.options.api_key.reveal()
        self._session = Session(self.upstream, self._url, self._key)
        self._cancellations: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Let the cancellations end that are under way."""
        if self._cancellations:
            await asyncio.wait(self._cancellations, timeout=CLOSE_WITHIN)

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one job, which is cancelled if it is left before its end."""
        timeouts = target.timeouts
        images = [await self._upload(url, timeouts) for url in image_urls(request)]
        # In a task of its own: if the caller leaves during the POST, its answer still tells which job to cancel.
        creation = asyncio.create_task(
            self._create("/jobs", job_of(request, target.model, images), timeouts), context=Context()
        )
        ended = False
        try:
            job = await asyncio.shield(creation)
            async with await self._send("GET", f"/jobs/{job}/events", timeouts) as answer:
                async for line in answer.lines():
                    chunk = chunk_of(line, hidden=[self._key])
                    if chunk is None:
                        continue
                    ended = bool(chunk.choices[0].finish_reason)
                    if ended:
                        answer.release()  # only the end of the body follows, so the connection can be used again
                    yield chunk
                    if ended:
                        return
                raise UpstreamTruncated()
        finally:
            if not ended:
                self._cancel(creation)

    async def _upload(self, url: str, timeouts: Timeouts) -> str:
        media_type, content = await image_of(url)
        # A form can be sent once, and `_send` may send twice.
        return await self._create(
            "/files", lambda: Multipart().file("file", content, filename="image", content_type=media_type), timeouts
        )

    async def _create(self, path: str, body: bytes | Callable[[], Multipart], timeouts: Timeouts) -> str:
        async with await self._send("POST", path, timeouts, body) as answer:
            return read_document(await answer.read(), Created).id

    def _cancel(self, creation: asyncio.Task[str]) -> None:
        """Cancel a job without delaying the caller.

        The task has an empty context, so its request does not belong to the call, which ends now.
        """
        task = asyncio.create_task(self._delete(creation), context=Context())
        self._cancellations.add(task)
        task.add_done_callback(self._cancellations.discard)

    async def _delete(self, creation: asyncio.Task[str]) -> None:
        with suppress(GatewayError):  # a job that was refused needs no cancellation
            job = await creation
            (await self._send("DELETE", f"/jobs/{job}", CANCEL)).close()

    async def _send(
        self, method: str, path: str, timeouts: Timeouts, body: bytes | Callable[[], Multipart] | None = None
    ) -> Answer:
        """The answer to a request that is signed in; typed errors for other statuses than 200 to 299."""
        token = await self._session.token(timeouts)
        answer = await self._send_with(token, method, path, timeouts, body)
        if answer.status == 401:
            # The vendor ended the token before its time. It has refused the request, so nothing is done twice.
            answer.close()
            self._session.forget(token)
            token = await self._session.token(timeouts)
            answer = await self._send_with(token, method, path, timeouts, body)
        try:
            await raise_for_status(answer, hidden=[self._key, token])
        except BaseException:
            answer.close()
            raise
        return answer

    async def _send_with(
        self, token: str, method: str, path: str, timeouts: Timeouts, body: bytes | Callable[[], Multipart] | None
    ) -> Answer:
        more: Mapping[str, str] = JSON if isinstance(body, bytes) else {}
        content = body() if callable(body) else body
        url = f"{self._url}{path}"
        return await self.upstream.send(method, url, headers=headers_of(token, more), body=content, timeouts=timeouts)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Register the provider with the gateway."""
    register(JobProvider)
