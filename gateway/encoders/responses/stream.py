"""Encodes streams of any provider as events of the Responses API (docs/api.md, "POST /v1/responses").

One answer is a list of items: reasoning, a message, calls of tools. Each is announced, written in pieces and completed;
the last event has the whole response with its usage. A call is completed when the next one begins, unless more of its
arguments are to be expected. Reasoning is completed last, because its signatures come with the end of an answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.billing.usage import text_units
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.responses.document import ResponseDocument
from gateway.encoders.responses.events import Events
from gateway.encoders.responses.items import CalledTool, flat_annotations, image_item, image_results, logprobs_of, raw
from gateway.encoders.responses.native import NativeEvents
from gateway.encoders.responses.open_items import OpenCall, OpenCustomCall, OpenItem, OpenMessage, OpenReasoning
from gateway.encoders.templated_encoder import is_offer
from gateway.errors import GatewayError
from gateway.ids import padding
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, Delta, ToolCallDelta
from gateway.schemas.native_request import NativeChunk
from gateway.schemas.reasoning_state import ReasoningState
from gateway.schemas.responses.native import ResponsesNative

_encode = msgspec.json.Encoder().encode
HEAD = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":'
DELTA = b"%b%d%b%b%b"  # HEAD as an argument: a format is read byte by byte, each time
END = b"}\n\n"
AFTER = b',"logprobs":[]' + END
ENDS = {"length": "incomplete", "content_filter": "incomplete"}  # statuses; "completed" otherwise


class _Signed(Struct):
    """What the model wants back with its next request."""

    models: tuple[str, ...]
    thinking_blocks: Any = UNSET
    reasoning_details: Any = UNSET


class ResponsesStreamEncoder(AnswerEncoder):
    """Turns one provider stream into events of the Responses API."""

    __slots__ = (
        "_calls",
        "_document",
        "_events",
        "_items",
        "_message",
        "_native",
        "_offered",
        "_plain",
        "_prefix",
        "_reasoning",
        "_request",
        "_signed",
        "_suffix",
        "_tail",
    )

    def __init__(self, form: AnswerForm, request: ChatRequest, *, count: CountAnswer | None = None) -> None:
        super().__init__(form, count=count)
        native = request.native
        assert isinstance(native, ResponsesNative)
        self._document = ResponseDocument(form, request)
        self._events = Events()
        self._native = NativeEvents(self._document, self._events)
        self._request = native
        self._signed = _Signed(tuple(dict.fromkeys((native.asked, form.model))))
        self._items: list[bytes | None] = []  # complete items by position; None for those that are open
        self._reasoning: list[OpenReasoning] = []
        self._message: OpenMessage | None = None
        self._calls: dict[int, OpenCall] = {}  # open ones by the number of the call
        self._plain: ChatChunk | None = None  # the last chunk, if it was only text
        self._offered: NativeChunk | None = None  # the last chunk, if it was an event that may become a template
        self._tail = AFTER  # of the delta events, after the text
        self._prefix = b""  # of the delta events of the open text, after the number

    # Parts -----------------------------------------------------------------------------------------------------------

    def feed(self, chunk: ChatChunk) -> bytes:
        if (
            self._message is not None
            and self._surrogates is None
            and len(chunk.choices) == 1
            and (frame := self._text(chunk, chunk.choices[0]))
        ):
            return frame
        self._plain = None
        if isinstance(chunk, NativeChunk):
            return self._feed_native(chunk)
        return super().feed(chunk)

    def part_frames(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        frames = [self._begin()]
        if part.index:
            return frames[0]  # one answer is all that a request can ask for
        delta = part.delta
        if delta.reasoning_content:
            frames.append(self._add_reasoning(delta.reasoning_content))
        self._keep_signatures(delta)
        if delta.content or part.logprobs:
            frames.append(self._add_text(chunk, delta, part.logprobs))
        if delta.annotations is not UNSET and (annotations := flat_annotations(delta.annotations)):
            frames.append(self._open_message() + self._written().annotate(annotations))
        if delta.refusal:
            frames.append(self._open_message() + self._written().refusal(delta.refusal))
        for fragment in delta.tool_calls or ():
            frames.append(self._add_call(fragment))
        if delta.images:
            frames += [self._add_image(result) for result in image_results(delta.images)]
        return b"".join(frames)

    def _begin(self) -> bytes:
        """The first two events."""
        if self._events.number:
            return b""
        response = b'"response":%b' % self._document.write("in_progress")
        return self._events.frame("response.created", response) + self._events.frame("response.in_progress", response)

    def _place(self) -> int:
        """The position of a new item."""
        self._items.append(None)
        return len(self._items) - 1

    def _add_reasoning(self, text: str) -> bytes:
        frames = b""
        if not self._reasoning or self._reasoning[-1].is_written:
            frames = self._end_message("completed")
            opened = OpenReasoning(self._events, self._document.suffix, self._place())
            self._reasoning.append(opened)
            frames += opened.begin()
        return frames + self._reasoning[-1].text(text)

    def _end_reasoning_text(self) -> bytes:
        return self._reasoning[-1].end_text() if self._reasoning else b""

    def _add_text(self, chunk: ChatChunk, delta: Delta, logprobs: Any) -> bytes:
        frames, found = self._open_message(), logprobs_of(logprobs)
        message, hidden = self._written(), self._padding(chunk)
        frames += message.text(delta.content or "", found, hidden)
        if not (found or hidden):
            self._plain, self._prefix, self._tail = chunk, b',%b,"delta":' % message.part_place, AFTER
        return frames

    def _padding(self, chunk: ChatChunk) -> bytes:
        kind = self.form.obfuscation
        if kind == "on":
            return b',"obfuscation":%b' % _encode(chunk.obfuscation or padding())
        if kind == "upstream" and chunk.obfuscation:
            return b',"obfuscation":%b' % _encode(chunk.obfuscation)
        return b""

    def _open_message(self) -> bytes:
        """The events that begin a message, where none is open."""
        if self._message is not None:
            return b""
        frames = self._end_reasoning_text() + self._end_calls("completed", whole=True)
        self._message = OpenMessage(self._events, self._document.suffix, self._place())
        return frames + self._message.begin()

    def _written(self) -> OpenMessage:
        assert self._message is not None, "it was opened"
        return self._message

    def _add_call(self, fragment: ToolCallDelta) -> bytes:
        number, frames = fragment.index, b""
        assert isinstance(number, int), "the encoder of the choice has numbered it"
        if fragment.id:
            frames = self._begin_call(number, fragment)
        opened = self._calls.get(number)
        if opened is None:
            return frames  # a part of a call that is complete
        function, custom = fragment.function, fragment.custom
        piece = (function.arguments if function else custom.input if custom else "") or ""
        return frames + opened.arguments(piece)

    def _begin_call(self, number: int, fragment: ToolCallDelta) -> bytes:
        frames = self._end_reasoning_text() + self._end_message("completed") + self._end_calls("completed", whole=True)
        call_id, named = str(fragment.id), fragment.function or fragment.custom
        name = (named.name if named else "") or ""
        if fragment.extra_content is not UNSET:
            frames += self._sign_call(call_id, fragment.extra_content)
        tool = CalledTool.of(name, self._request)
        kind = OpenCustomCall if tool.is_custom else OpenCall
        opened = kind(self._events, self._document.suffix, self._place(), call_id=call_id, tool=tool)
        self._calls[number] = opened
        return frames + opened.begin()

    def _sign_call(self, call_id: str, signature: Raw) -> bytes:
        """An item for the signature of a call, which a call has no place for."""
        opened = OpenReasoning(self._events, self._document.suffix, self._place())
        begun = opened.begin()
        ended, item = opened.end(ReasoningState(self._signed.models, calls={call_id: signature}))
        self._items[opened.position] = item
        return begun + ended

    def _add_image(self, result: str) -> bytes:
        opened = OpenItem(self._events, self._document.suffix, self._place())
        frames = self._end_reasoning_text() + self._end_message("completed")
        item = self._items[opened.position] = image_item(opened.id, "completed", result)
        frames += opened.added(image_item(opened.id, "in_progress"))
        return frames + self._events.frame("response.image_generation_call.completed", opened.place) + opened.done(item)

    def _keep_signatures(self, delta: Delta) -> None:
        """Keep what has signatures; it goes with the reasoning at the end."""
        if delta.thinking_blocks is not UNSET and delta.thinking_blocks is not None:
            self._signed.thinking_blocks = raw(delta.thinking_blocks)
        if delta.reasoning_details is not UNSET and delta.reasoning_details is not None:
            self._signed.reasoning_details = raw(delta.reasoning_details)

    # Ends ------------------------------------------------------------------------------------------------------------

    def _end_message(self, status: str) -> bytes:
        opened, self._message = self._message, None
        if opened is None:
            return b""
        self._plain = None
        frames, item = opened.end(status)
        self._items[opened.position] = item
        return frames

    def _end_calls(self, status: str, *, whole: bool = False) -> bytes:
        """Complete the open calls, or those of them that are `whole`."""
        frames = []
        for number, opened in list(self._calls.items()):
            if whole and not opened.is_whole:
                continue
            del self._calls[number]
            ended, item = opened.end(status)
            self._items[opened.position] = item
            frames.append(ended)
        return b"".join(frames)

    def _end_reasoning(self) -> bytes:
        """Complete the reasoning; the last item has the signatures of all."""
        signed = self._signed
        has_signatures = signed.thinking_blocks is not UNSET or signed.reasoning_details is not UNSET
        frames = []
        if has_signatures and not self._reasoning:  # reasoning of which nothing is shown
            self._reasoning.append(OpenReasoning(self._events, self._document.suffix, self._place()))
            frames.append(self._reasoning[0].begin())
        for opened in self._reasoning:
            state = ReasoningState(signed.models)
            if has_signatures and opened is self._reasoning[-1]:
                state = ReasoningState(signed.models, signed.thinking_blocks, signed.reasoning_details)
            ended, item = opened.end(state)
            self._items[opened.position] = item
            frames.append(ended)
        return b"".join(frames)

    def last_frames(self, finishes: list[ChunkChoice]) -> bytes:
        if self._native.last is not None:
            return self._native.close(self.counted_usage())
        reason = finishes[0].finish_reason or "stop"
        status = ENDS.get(reason, "completed")
        frames = [self._begin(), self._end_message(status), self._end_calls(status), self._end_reasoning()]
        items = [item for item in self._items if item is not None]
        response = self._document.write(
            status, items, usage=self.counted_usage(), reason=reason, tier=self._last.service_tier
        )
        frames.append(self._events.frame(f"response.{status}", b'"response":%b' % response))
        return b"".join(frames)

    def fail(self, error: GatewayError) -> bytes:
        """The last events of an answer that is not complete."""
        frames = self._begin()
        items = [item for item in self._items if item is not None]
        response = self._document.write("failed", items, error=error)
        return frames + self._events.frame("response.failed", b'"response":%b' % response)

    @property
    def continues_native(self) -> bool:
        return not self._native.passed.is_any or self._native.passed.may_go_on

    def continue_elsewhere(self, text: str) -> None:
        super().continue_elsewhere(text)
        passed = self._native.passed
        if passed.is_any:
            self._items = [*(passed.done[place] for place in range(passed.position)), None]
            self._message = OpenMessage(self._events, self._document.suffix, passed.position)
            self._message.go_on(passed.message, text)
            self._plain = self._offered = None

    # Text fast path --------------------------------------------------------------------------------------------------

    def feed_texts(self, sample: ChatChunk, texts: list[str], below: float) -> bytes:
        if (
            (sample is not self._plain and not self._takes_offer(sample))
            or "" in texts
            or self.form.obfuscation == "on"
        ):
            return b""
        delivered = self.delivered
        quarters = delivered.text_quarter_tokens
        for text in texts:
            quarters += len(text) if text.isascii() else text_units(text)
        if quarters >= below:
            return b""
        number, prefix, tail = self._events.number, self._prefix, self._tail
        try:
            if len(texts) == 1:
                frames = DELTA % (HEAD, number, prefix, _encode(texts[0]), tail)
            else:
                each = enumerate(texts, number)
                frames = b"".join([DELTA % (HEAD, at, prefix, _encode(text), tail) for at, text in each])
        except UnicodeEncodeError:  # a lone surrogate
            return b""
        self._events.number = number + len(texts)  # after the encoding, which may raise
        if self._message is not None:
            self._message.texts += texts
        self._last, delivered.text_quarter_tokens = sample, quarters
        return frames

    def _text(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        """The event of a chunk that has only a fragment of text for the open text; empty for any other chunk."""
        delta, text = part.delta, part.delta.content
        if (
            self._plain is None
            or type(text) is not str
            or not text
            or part.index
            or part.finish_reason is not None
            or part.logprobs is not None
            or chunk.usage
            or chunk.obfuscation is not UNSET
        ):
            return b""
        try:
            encoded = _encode(text)
        except UnicodeEncodeError:  # a lone surrogate
            return b""
        if _encode(delta) != b'{"content":%b}' % encoded:
            return b""
        message = self._written()
        message.texts.append(text)
        self._last = self._plain = chunk
        self.delivered.text_quarter_tokens += len(text) if text.isascii() else text_units(text)
        number, self._events.number = self._events.number, self._events.number + 1
        return DELTA % (HEAD, number, self._prefix, encoded, AFTER)

    def _takes_offer(self, sample: ChatChunk) -> bool:
        """Whether texts may follow the event of `sample`, which was passed on."""
        offered, self._offered = self._offered, None
        if offered is None or self._message is not None or not is_offer(offered, sample):
            return False
        if (place := self._native.text_place(offered)) is None:
            return False
        self._plain, self._prefix, self._tail = offered, place + b',"delta":', END
        return True

    def _feed_native(self, chunk: NativeChunk) -> bytes:
        """The event of an upstream that has the dialect; its content is counted."""
        usage, chunk.usage = chunk.usage, UNSET
        self._last = self._offered = chunk
        for part in chunk.choices:
            for counted in self._choice(part.index, chunk, []).feed(part):
                self._add(counted.delta)
        if usage is not UNSET and usage is not None:
            self._take_usage(usage)
        return self._native.frame(chunk)
