"""The vendor's dialect as pure functions.

A job is `{"model", "prompt", "images": [id], "limit", "temperature"}`. Its events are lines of JSON:
`{"event": "queued"}`, `{"event": "text", "text"}`, `{"event": "failed", "error"}`, and last
`{"event": "done", "reason", "tokens": {"read", "written"}}`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway import ChatChunk, ChatRequest, CompletionUsage, ImagePart, TextPart, UserMessage, error_of_document
from gateway.errors import InvalidValue, UpstreamInvalidResponse

JSON = {"Content-Type": "application/json"}
REASONS = {"complete": "stop", "limit": "length"}
T = TypeVar("T")


class Tokens(Struct):
    """What the vendor counts."""

    read: int
    written: int


class Event(Struct):
    """One line of a job's events."""

    event: str
    text: str = ""
    reason: str = ""
    error: object = None
    tokens: Tokens | None = None


def read_document(data: bytes, kind: type[T]) -> T:
    """A document of the vendor; UpstreamInvalidResponse if it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UpstreamInvalidResponse(detail=f"not a {kind.__name__} of the vendor") from None


def job_of(request: ChatRequest, model: str, images: Sequence[str]) -> bytes:
    """The body that creates a job; `images` are the ids of the uploads."""
    job: dict[str, object] = {"model": model, "prompt": "\n".join(_texts(request)), "images": images}
    if request.max_output is not None:
        job["limit"] = request.max_output
    if request.temperature is not None:
        job["temperature"] = request.temperature
    return msgspec.json.encode(job)


def chunk_of(line: bytes, hidden: Sequence[str]) -> ChatChunk | None:
    """The chunk of one event; None for an event that says nothing to the caller."""
    event = read_document(line, Event)
    if event.event == "failed":
        raise error_of_document(event.error, hidden)
    if event.event == "text":
        return ChatChunk.text(event.text)
    if event.event != "done":
        return None
    chunk = ChatChunk.finish(REASONS.get(event.reason, "stop"))
    if event.tokens is not None:
        read, written = event.tokens.read, event.tokens.written
        chunk.usage = CompletionUsage(read, written, read + written)
    return chunk


def image_urls(request: ChatRequest) -> Iterator[str]:
    """The address of every image, in the order of the conversation."""
    for message in request.messages:
        if isinstance(message, UserMessage) and not isinstance(message.content, str):
            yield from (part.image_url.url for part in message.content if isinstance(part, ImagePart))


async def image_of(url: str) -> tuple[str, bytes]:
    """Media type and bytes of an image that is in the request as a data URL."""
    head, _, data = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64"):
        raise InvalidValue("Invalid image: expected a base64 data URL.", param="messages")
    try:
        # In a thread: 20 MB take the time in which other calls could have been served.
        content = await asyncio.to_thread(base64.b64decode, data, validate=True)
    except binascii.Error:
        raise InvalidValue("Invalid image: this is not base64.", param="messages") from None
    return head.removeprefix("data:").removesuffix(";base64"), content


def headers_of(token: str, more: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request that is signed in."""
    return {"Authorization": f"Bearer {token}", **more}


def _texts(request: ChatRequest) -> Iterator[str]:
    for message in request.messages:
        if isinstance(message.content, str):
            yield message.content
        else:
            yield from (part.text for part in message.content or () if isinstance(part, TextPart))
