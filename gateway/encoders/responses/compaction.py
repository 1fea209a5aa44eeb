"""The answer to a compaction: one item with the sealed summary, streamed or whole."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.responses.document import ResponseDocument, usage_object
from gateway.encoders.responses.stream import ResponsesStreamEncoder
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChatCompletion, ChunkChoice, CompletionUsage

_encode = msgspec.json.Encoder().encode

#: Seals a text for the account of the call.
Seal = Callable[[str], str]


def compaction_item(summary: str, suffix: str, seal: Seal) -> bytes:
    """The JSON of the item; UpstreamInvalidResponse if the model has written nothing."""
    if not summary.strip():
        raise UpstreamInvalidResponse(detail="a summary without text")
    return _encode({"type": "compaction", "id": f"cmp_{suffix}", "encrypted_content": seal(summary)})


def encode_compaction(
    answer: ChatCompletion, form: AnswerForm, request: ChatRequest, seal: Seal, *, own: bool
) -> bytes:
    """The JSON of a whole answer. `own`: in the form of the path of compactions, else as a response."""
    if not answer.choices:
        raise UpstreamInvalidResponse(detail="no choices")
    document = ResponseDocument(form, request)
    item = compaction_item(answer.choices[0].message.content or "", document.suffix, seal)
    usage = answer.usage or CompletionUsage()
    if not own:
        return document.write("completed", [item], usage=usage, tier=answer.service_tier)
    return b'{"id":%b,"object":"response.compaction","created_at":%d,"output":[%b],"usage":%b}' % (
        _encode(document.id),
        form.created,
        item,
        usage_object(usage),
    )


class CompactionStreamEncoder(ResponsesStreamEncoder):
    """Turns the stream of a summary into the events of a compaction; the text is sent at the end, sealed."""

    __slots__ = ("_seal", "_summary")

    def __init__(self, form: AnswerForm, request: ChatRequest, seal: Seal, *, count: CountAnswer | None = None) -> None:
        super().__init__(form, request, count=count)
        self._seal = seal
        self._summary: list[str] = []

    def feed(self, chunk: ChatChunk) -> bytes:
        return AnswerEncoder.feed(self, chunk)  # also events of the dialect: they are not passed on

    def part_frames(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        if part.index or not self.content_started:
            return b""
        if part.delta.content:
            self._summary.append(part.delta.content)
        return self._begin()

    def feed_texts(self, sample: ChatChunk, texts: list[str], below: float) -> bytes:
        return b""

    def last_frames(self, finishes: list[ChunkChoice]) -> bytes:
        item = compaction_item("".join(self._summary), self._document.suffix, self._seal)
        place = b'"output_index":0,"item":%b' % item
        tier = self._last.service_tier
        response = self._document.write("completed", [item], usage=self.counted_usage(), tier=tier)
        return b"".join(
            [
                self._events.frame("response.output_item.added", place),
                self._events.frame("response.output_item.done", place),
                self._events.frame("response.completed", b'"response":%b' % response),
            ]
        )
