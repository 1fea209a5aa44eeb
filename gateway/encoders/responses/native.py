"""Passes the events and documents of an upstream that has the dialect on: with our id, model and usage, no more.

Sharp edge: the event that ends an answer is kept until `close`, because the answer may still be refused, and because
its usage is the one that is charged.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from gateway.encoders.responses.document import ResponseDocument, usage_object
from gateway.encoders.responses.events import Events
from gateway.encoders.responses.passed_items import WITHOUT_ITEMS, PassedItems
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.answer_surrogates import decode_whole
from gateway.schemas.chat_response import CompletionUsage
from gateway.schemas.native_request import NativeChunk

TEXT = "response.output_text.delta"
ENDS = frozenset({"response.completed", "response.incomplete"})
STATES = frozenset({"response.created", "response.in_progress", "response.queued"})
_table = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode
_NUMBER = b'"sequence_number":%d'


class NativeEvents:
    """The events of one stream."""

    __slots__ = ("_document", "_events", "last", "passed")

    def __init__(self, document: ResponseDocument, events: Events) -> None:
        self._document, self._events = document, events
        self.last: NativeChunk | None = None  # the event that ends the answer
        self.passed = PassedItems()

    def frame(self, chunk: NativeChunk) -> bytes:
        """The frame of an event; empty for the one that ends the answer."""
        name = chunk.name
        if name in ENDS:
            self.last = chunk
            return b""
        data = chunk.event
        self.passed.is_any = True
        if name not in WITHOUT_ITEMS:
            self.passed.note(name, data)
        if name in STATES:
            data = self._with_response(data)
        return self._numbered(name, data)

    def text_place(self, chunk: NativeChunk) -> bytes | None:
        """The members of a text's event beside its type, its number and its text; None for any other event."""
        if chunk.name != TEXT:
            return None
        fields = _fields(chunk.event)
        for name in ("type", "sequence_number", "delta"):
            fields.pop(name, None)
        return b",%b" % _encode(fields)[1:-1] if fields else b""

    def close(self, usage: CompletionUsage) -> bytes:
        """The frame of the event that ends the answer."""
        assert self.last is not None, "a finish came with it"
        response = self._our_response(_fields(self.last.event), usage)
        # llama.cpp has its timings beside the response.
        return self._events.frame(self.last.name, b'"response":%b' % response)

    def _numbered(self, name: str, data: bytes) -> bytes:
        """The event with its number, which is nearly always the upstream's."""
        number = self._events.number
        mark = _NUMBER % number
        at = data.find(mark)
        if at < 0 or data[at + len(mark) : at + len(mark) + 1] not in (b",", b"}"):
            data = _encode({**_fields(data), "sequence_number": number})
        self._events.number = number + 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)

    def _with_response(self, data: bytes) -> bytes:
        fields = _fields(data)
        fields["response"] = Raw(self._our_response(fields, None))
        return _encode(fields)

    def _our_response(self, fields: dict[str, Raw], usage: CompletionUsage | None) -> bytes:
        return with_our_values(fields.get("response", Raw(b"{}")), self._document, usage)


def with_our_values(response: Raw | bytes, document: ResponseDocument, usage: CompletionUsage | None) -> bytes:
    """The upstream's response with our id, model, limit and usage."""
    fields = document.whole(_fields(bytes(response)))
    fields["id"], fields["model"] = Raw(_encode(document.id)), document.model
    fields["max_output_tokens"], fields["store"] = document.asked_limit, Raw(b"false")
    fields["usage"] = Raw(b"null" if usage is None else usage_object(usage))
    return _encode(fields)


def with_our_id(compaction: bytes, document: ResponseDocument, usage: CompletionUsage | None) -> bytes:
    """The upstream's compaction with our id and usage."""
    fields = _fields(compaction)
    fields["id"] = Raw(_encode(document.id))
    fields["usage"] = Raw(b"null" if usage is None else usage_object(usage))
    return _encode(fields)


def _fields(data: bytes) -> dict[str, Raw]:
    try:
        return decode_whole(_table, data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UpstreamInvalidResponse(detail=f"{type(error).__name__}: {error}"[:300]) from None
