"""Responses requests at servers that have the dialect: forwarded as they came, and read only to count them.

Sharp edge: the first events of a stream are kept until one follows that is more than a beginning, so that another
target can be tried after an early failure.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway import (
    Answer,
    ChatChunk,
    ChatMessage,
    ChatRequest,
    Choice,
    ChunkChoice,
    CompletionUsage,
    Delta,
    Event,
    FunctionCall,
    NativeChunk,
    NativeCompletion,
    Target,
    TextLane,
    ToolCall,
    ToolCallDelta,
    completion_usage,
)
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.plugins.upstream_errors import error_of_document

from .._shared.documents import UNREADABLE, decoded, raise_error_event
from .._shared.text_events import TextEvents
from .._shared.whole_events import Document, PlacedText, WholeEvents
from .responses_members import EventMembers, complete_response, is_bare
from .responses_texts import TEXT, NumberedTemplate, read_text
from .responses_wire import WireEvent, WireItem, WireResponse, WireState

_TRUE, _FALSE = Raw(b"true"), Raw(b"false")
_PLAIN_STREAM = Raw(b'{"include_obfuscation":false}')
_encode = msgspec.json.Encoder().encode

#: Events whose `delta` is content, by the field of a chat delta in which it is counted.
TEXTS = {
    TEXT: "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning_content",
    "response.reasoning_text.delta": "reasoning_content",
}
#: Events whose `delta` is written by the model for a tool.
ARGUMENTS = frozenset(
    {
        "response.function_call_arguments.delta", "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta", "response.code_interpreter_call_code.delta",
    }
)  # fmt: skip
BEGINNINGS = frozenset({"response.created", "response.in_progress", "response.queued"})
FINISHED = frozenset({"response.completed", "response.incomplete"})
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # of an event; it becomes a line of the answer
FAILED = frozenset({"response.failed", "response.cancelled", "error"})
SEARCHES = "web_search_call"
PLACE = ("type", "item_id", "output_index", "content_index", "summary_index")  # of a text that events go on with


#: Fields of a request that the path of compactions does not take.
NOT_COMPACTED = ("include", "max_output_tokens", "service_tier", "store", "tool_choice", "truncation")
_table = msgspec.json.Decoder(dict[str, Raw])
_event_decoder = msgspec.json.Decoder(WireEvent)
_state_decoder = msgspec.json.Decoder(WireState)
_response_decoder = msgspec.json.Decoder(WireResponse)


def responses_body(request: ChatRequest, target: Target, *, stream: bool) -> bytes:
    """The JSON to send for a request in this dialect: what was sent, with the few fields that are ours."""
    assert request.native is not None
    fields = dict(request.native.fields)
    for name in ("background", "stream", "stream_options", "service_tier", "max_output_tokens"):
        fields.pop(name, None)
    fields["model"], fields["store"] = Raw(_encode(target.model)), _FALSE
    if stream:
        fields["stream"] = _TRUE
        if not request.wants_obfuscation:
            fields["stream_options"] = _PLAIN_STREAM
    if request.max_output is not None:
        fields["max_output_tokens"] = Raw(b"%d" % request.max_output)
    if request.service_tier is not None:
        fields["service_tier"] = Raw(_encode(request.service_tier))
    return _encode(fields)


def compaction_body(body: bytes) -> bytes:
    """The same for the path of compactions, which has no options of an answer."""
    fields = _table.decode(body)
    for name in NOT_COMPACTED:
        fields.pop(name, None)
    return _encode(fields)


def read_compaction(body: bytes, hidden: Sequence[str]) -> NativeCompletion:
    """The answer of the path of compactions; an error that rides in it is raised."""
    compaction = decoded(_response_decoder, body)
    _check(compaction, hidden)
    if not compaction.output:
        raise UpstreamInvalidResponse(detail="a compaction without output")
    choice = Choice(message=ChatMessage(), finish_reason="stop")
    return NativeCompletion(document=body, choices=[choice], usage=read_usage(compaction))


async def read_responses(answer: Answer, hidden: Sequence[str], lane: TextLane) -> AsyncGenerator[ChatChunk]:
    """The chunks of one event stream."""
    async with answer:
        if answer.headers.get("Content-Type", "").startswith("application/json"):
            yield _as_event(read_response(await answer.read(), hidden))
            return
        kept: list[NativeChunk] = []
        begins = True
        reader, text_events = EventReader(hidden), TextEvents(lane, read_text, NumberedTemplate)
        while events := await answer.read_events(text_events.takes):
            for event in events:
                for chunk in reader.read(event):
                    text_events.set_template(event, chunk)
                    if begins and chunk.name in BEGINNINGS:
                        kept.append(chunk)
                        continue
                    for one in kept:
                        yield one
                    kept, begins = [], False
                    yield chunk
                    if chunk.name in FINISHED:
                        answer.release()
                        return
        raise UpstreamTruncated()


class EventReader:
    """Reads the events of one stream."""

    __slots__ = ("_hidden", "_members", "_whole")

    def __init__(self, hidden: Sequence[str]) -> None:
        self._hidden = hidden
        self._members = EventMembers()
        self._whole: WholeEvents | None = None  # while a high surrogate waits for its low surrogate

    def read(self, event: Event) -> list[NativeChunk]:
        """The chunks of an event; raises the error of one that ends a failed answer."""
        if self._whole is None:
            try:
                wire = _event_decoder.decode(event.data)
            except UNREADABLE:
                pass
            else:
                return [self._chunk(event, wire)]
        self._whole = whole = self._whole or WholeEvents(_texts_of, _alone)
        found = [self._chunk(one, _decoded(one)) for one in whole.read(event)]
        if not whole.are_waiting:
            self._whole = None
        return found

    def _chunk(self, event: Event, wire: WireEvent) -> NativeChunk:
        completed = self._members.complete(event.data, wire)
        if completed is not event.data:
            event = Event(completed, event.name)
            wire = _decoded(event)
        return read_event(event, wire, self._hidden)


def _decoded(event: Event) -> WireEvent:
    try:
        return _event_decoder.decode(event.data)
    except UNREADABLE as error:
        raise UpstreamInvalidResponse(detail=f"{type(error).__name__}: {error}"[:300]) from None


def _texts_of(document: Document) -> list[PlacedText]:
    """The `delta` of an event, which goes on in the next event of its part or item."""
    if not isinstance(document.get("delta"), str):
        return []
    place = tuple(str(document.get(name)) for name in PLACE)
    return [PlacedText(place, document, "delta")]


def _alone(document: Document, text: PlacedText) -> Document:
    return {**text.holder, "logprobs": []} if "logprobs" in document else text.holder


def read_event(event: Event, wire: WireEvent, hidden: Sequence[str]) -> NativeChunk:
    """The chunk of an event; raises the error of one that ends a failed answer."""
    data = event.data
    name = wire.type or event.name
    if not _NAME.fullmatch(name):
        raise UpstreamInvalidResponse(detail="an event whose name is none")
    if name in TEXTS:
        delta = Delta()
        setattr(delta, TEXTS[name], _text(wire.delta))
        return _content(data, name, delta)
    if name in ARGUMENTS:
        call = ToolCallDelta(wire.output_index or 0, function=FunctionCall(arguments=_text(wire.delta)))
        return _content(data, name, Delta(tool_calls=[call]))
    if name == "response.output_item.added" and wire.item is not None and wire.item.call_id:
        call = ToolCallDelta(wire.output_index or 0, wire.item.call_id, "function", FunctionCall(name=wire.item.name))
        return _content(data, name, Delta(tool_calls=[call]))
    if name in FINISHED:
        return _last(data, name, hidden)
    if name in FAILED:
        _raise_failure(data, hidden)
    return NativeChunk(event=data, name=name)


def _content(data: bytes, name: str, delta: Delta) -> NativeChunk:
    return NativeChunk(event=data, name=name, choices=[ChunkChoice(0, delta)])


def _text(delta: Any) -> str:
    return delta if isinstance(delta, str) else ""


def _last(data: bytes, name: str, hidden: Sequence[str]) -> NativeChunk:
    response = decoded(_state_decoder, data).response
    _check(response, hidden)
    if is_bare(response.output):
        fields = _table.decode(data)
        fields["response"] = Raw(complete_response(fields["response"], response.output))
        data = _encode(fields)
    return NativeChunk(
        event=data,
        name=name,
        choices=[ChunkChoice(0, finish_reason=_reason(response))],
        usage=read_usage(response) or UNSET,
        service_tier=response.service_tier or UNSET,
    )


def _raise_failure(data: bytes, hidden: Sequence[str]) -> None:
    try:
        error = _state_decoder.decode(data).response.error
    except UNREADABLE:
        error = None
    if error:
        raise error_of_document(error, hidden)
    raise_error_event(data, hidden)


def read_response(body: bytes, hidden: Sequence[str]) -> NativeCompletion:
    """The whole answer in a JSON body; an error that rides in it is raised."""
    response = decoded(_response_decoder, body)
    _check(response, hidden)
    if response.status not in ("completed", "incomplete"):
        raise UpstreamInvalidResponse(detail=f"a response with the status {response.status!r}"[:300])
    choice = Choice(message=_message(response.output), finish_reason=_reason(response))
    return NativeCompletion(
        document=complete_response(body, response.output) if is_bare(response.output) else body,
        choices=[choice],
        usage=read_usage(response),
        service_tier=response.service_tier or UNSET,
    )


def _check(response: WireResponse, hidden: Sequence[str]) -> None:
    if response.error:
        raise error_of_document(response.error, hidden)


def _message(output: list[WireItem]) -> ChatMessage:
    """The content of the items as one message, for counts."""
    parts = [part for item in output if item.type == "message" for part in item.content or ()]
    thoughts = [part for item in output if item.type == "reasoning" for part in item.content or item.summary or ()]
    calls = [
        ToolCall(item.call_id, "function", FunctionCall(item.name, _text(item.arguments) or _text(item.input)))
        for item in output
        if item.call_id and item.type in ("function_call", "custom_tool_call")
    ]
    return ChatMessage(
        content="".join(part.text for part in parts) or None,
        refusal="".join(part.refusal for part in parts) or None,
        reasoning_content="".join(part.text for part in thoughts) or UNSET,
        tool_calls=calls or UNSET,
    )


def _reason(response: WireResponse) -> str:
    """The finish reason of chat."""
    details = response.incomplete_details
    if response.status != "incomplete" or details is None:
        return "stop"
    return "content_filter" if details.reason == "content_filter" else "length"


def read_usage(response: WireResponse) -> CompletionUsage | None:
    """The usage in chat's words; None if there is none that could be right."""
    try:
        sent = msgspec.json.decode(response.usage) if response.usage is not UNSET else None
    except UNREADABLE:
        return None
    if not isinstance(sent, dict):
        return None
    usage = completion_usage(
        {
            "prompt_tokens": sent.get("input_tokens"),
            "completion_tokens": sent.get("output_tokens"),
            "total_tokens": sent.get("total_tokens"),
            "prompt_tokens_details": sent.get("input_tokens_details") or {},
            "completion_tokens_details": sent.get("output_tokens_details") or {},
        }
    )
    searches = sum(item.type == SEARCHES for item in response.output)
    if usage is not None and searches:
        usage.web_searches = searches
    return usage


def _as_event(answer: NativeCompletion) -> NativeChunk:
    """The last event of a stream, made of a whole answer."""
    reason = answer.choices[0].finish_reason
    name = "response.completed" if reason == "stop" else "response.incomplete"
    event = _encode({"type": name, "sequence_number": 0, "response": Raw(answer.document)})
    message = answer.choices[0].message
    delta = Delta(
        content=message.content,
        refusal=message.refusal,
        reasoning_content=message.reasoning_content,
    )
    return NativeChunk(
        event=event,
        name=name,
        choices=[ChunkChoice(0, delta, finish_reason=reason)],
        usage=answer.usage or UNSET,
        service_tier=answer.service_tier,
    )
