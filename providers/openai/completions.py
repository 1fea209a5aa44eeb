"""Completions at OpenAI-compatible servers: the request as it was sent, and the answer read as that of a chat.

A choice of a completion differs from one of a chat only in its `text`. So an answer is brought into the form of a chat,
and the readers of chats understand the habits of each vendor.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, structs

from gateway import Answer, ChatChunk, ChatCompletion, ChatRequest, Event, Target
from gateway.errors import UpstreamTruncated
from gateway.schemas.native_request import NativeRequest
from gateway.sse import DONE_DATA

from .._shared.documents import UNREADABLE
from .._shared.fitting import read_json
from .._shared.whole_stream import events_of, folded, is_event_stream
from .chunks import ChunkReader, read_completion
from .presets import Quirks
from .request import TRUE, stream_options
from .unnamed_errors import raise_unnamed_error

PATH = "/completions"
NOTHING = b"null"  # llama.cpp begins a stream of several texts with it
_encode = msgspec.json.Encoder().encode


def completions_body(
    request: ChatRequest, native: NativeRequest, target: Target, quirks: Quirks, stream: bool
) -> bytes:
    """The JSON to send for `request` to `target`."""
    fields = dict(native.fields)
    fields["model"] = Raw(_encode(target.model))
    fields["max_tokens"] = Raw(_encode(request.max_output))
    fields.pop("stream", None)
    fields.pop("stream_options", None)
    if stream:
        fields["stream"] = TRUE
        if not quirks.no_stream_options:
            fields["stream_options"] = stream_options(request)
    for name, theirs in quirks.rename.items():
        if name in fields:
            fields[theirs] = fields.pop(name)
    for name, value in quirks.always.items():
        fields.setdefault(name, value)
    return _encode(fields)


async def read_texts(body: bytes, hidden: Sequence[str], *, is_counted: bool) -> ChatCompletion:
    """The whole answer in a body; an error that rides in it is raised. `is_counted`: its usage is that of all texts."""
    if body[:1] == b"{" or not is_event_stream(body):
        answer = read_completion(as_chat(body, "message"), hidden)
    else:
        answer = await folded(_chunks_of(body, hidden))
    if not is_counted:
        answer.usage = None
    return answer


async def read_text_stream(
    answer: Answer, hidden: Sequence[str], *, needs_done: bool, is_counted: bool
) -> AsyncGenerator[ChatChunk]:
    """The chunks of an event stream. `needs_done`: it is cut if it ends without its marker."""
    async with answer:
        reader = ChunkReader(hidden)
        if answer.headers.get("Content-Type", "").startswith("application/json"):
            chunk = reader.read_whole(as_chat(await answer.read(), "message"))  # an error, or a server without streams
            yield _without_count(chunk, is_counted)
            return
        while events := await answer.read_events():
            for event in events:
                if event.data == DONE_DATA:
                    answer.release()
                    if (last := reader.end()) is not None:
                        yield last
                    return
                found = None if event.data == NOTHING else reader.read(_chat_event(event))
                if found is not None:
                    yield _without_count(found, is_counted)
            del events, event, found  # nothing is kept while the upstream is silent
        if needs_done or not reader.finished:
            raise_unnamed_error(answer.stray, hidden)
            raise UpstreamTruncated()
        if (last := reader.end()) is not None:
            yield last


def _chunks_of(body: bytes, hidden: Sequence[str]) -> Iterator[ChatChunk]:
    """The chunks in the body of a stream that came whole; UpstreamTruncated if it has no end."""
    reader = ChunkReader(hidden)
    for event in events_of(body):
        if event.data == DONE_DATA:
            break
        if event.data != NOTHING and (chunk := reader.read(_chat_event(event))) is not None:
            yield chunk
    else:
        if not reader.finished:
            raise UpstreamTruncated()
    if (last := reader.end()) is not None:
        yield last


def _without_count(chunk: ChatChunk, is_counted: bool) -> ChatChunk:
    """The chunk, without a usage that is not of all texts."""
    if not is_counted:
        chunk.usage = UNSET
    return chunk


def _chat_event(event: Event) -> Event:
    return event if event.name == "error" else structs.replace(event, data=as_chat(event.data, "delta"))


def as_chat(data: bytes, inner: str) -> bytes:
    """The document of a completion with its texts as the contents of `inner`, "message" or "delta".

    What is no such document is returned as it is, for the reader of chats to judge.
    """
    try:
        document = read_json(data, surrogates=True)
    except UNREADABLE:
        return data
    if not isinstance(document, dict) or not isinstance(document.get("choices"), list):
        return data
    choices = [_choice(choice, inner) for choice in document["choices"] if isinstance(choice, dict)]
    try:
        return _encode({**document, "choices": choices})
    except UnicodeEncodeError:  # a surrogate, whose other half may be in the next chunk
        return json.dumps({**document, "choices": choices}).encode()


def _choice(choice: dict[str, Any], inner: str) -> dict[str, Any]:
    kept: dict[str, Any] = {name: choice[name] for name in ("index", "logprobs", "finish_reason") if name in choice}
    return {**kept, inner: {"content": choice.get("text")}}
