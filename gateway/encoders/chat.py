"""Encodes chat answers by the rules of the wire format (docs/api.md, "POST /v1/chat/completions").

`ChatStreamEncoder` takes a provider's chunks and returns the frames of a valid stream: one id, created and model, a
role chunk per choice, tool calls numbered from 0 and named once, one finish per choice, and usage last, if requested.
`encode_completion` does the same for a whole answer. Both count what was delivered, for charges without upstream usage.
Sharp edge: the bytes of `feed` must be sent in order; `close` raises for an incomplete stream.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.billing.delivered import Delivered
from gateway.billing.usage import is_possible, text_units
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.ids import padding, tool_call_id
from gateway.schemas.chat_response import (
    FINISH_REASONS,
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    ChunkChoice,
    CompletionUsage,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
)
from gateway.sse import DONE, encode_data

_encoder = msgspec.json.Encoder()


class AnswerForm(msgspec.Struct, frozen=True):
    """The form of the answer that the caller requested."""

    id: str
    created: int  # Unix seconds
    model: str  # the public name of the model in the answer
    include_usage: bool = False
    obfuscation: str = (
        "upstream"  # padding of delta chunks: "upstream": as it was sent, "on": added if absent, "off": none
    )
    legacy_functions: bool = False  # answer with function_call, because the request used functions
    service_tier: str | None = None  # the requested tier, for upstreams that do not report the used one
    metadata: Raw | UnsetType = UNSET  # of the request, echoed on a whole answer


class _FrameTemplate(msgspec.Struct, frozen=True):
    """A frame without its text, and the values it depends on."""

    index: int
    origin: tuple[str | None, str | UnsetType | None]
    before: bytes
    after: bytes


#: Replaces the text while a template is made; no id, model or fingerprint is equal to it.
PLACEHOLDER = "\0text\0"


class ChatStreamEncoder:
    """Turns one provider stream into frames for the client."""

    __slots__ = (
        "_choices",
        "_estimate",
        "_last",
        "_plain",
        "_template",
        "content_started",
        "continued",
        "delivered",
        "form",
        "usage",
    )

    def __init__(self, form: AnswerForm, *, estimate: Callable[[int], CompletionUsage] | None = None) -> None:
        self.form = form
        self.usage: CompletionUsage | None = None
        self._estimate = estimate  # usage from the delivered quarter tokens, without an upstream count
        self.delivered = Delivered()
        self.continued = False  # a second upstream continued, so neither count covers the whole answer
        self.content_started = False  # content of the answer was encoded
        self._choices: list[_ChoiceEncoder] = []
        self._last = ChatChunk()
        self._template: _FrameTemplate | None = None
        self._plain: ChatChunk | None = None  # the last chunk, if its frame was made from the template

    def feed(self, chunk: ChatChunk) -> bytes:
        """The frames of `chunk`; may be empty."""
        if chunk.usage is not UNSET and chunk.usage is not None:
            self.usage = chunk.usage if is_possible(chunk.usage) else None
        choices = chunk.choices
        if not choices:
            return self._moderation(chunk)
        if len(choices) == 1 and (frame := self._text(chunk, choices[0])):
            return frame
        self._plain = None  # a choice may have ended
        frames: list[bytes] = []
        for part in choices:
            for encoded in self._choice(part.index, chunk, frames).feed(part):
                self._count(encoded.delta)
                frames.append(self._encode(chunk, encoded))
        return b"".join(frames)

    def continue_elsewhere(self) -> None:
        """Another upstream continues the answer, so the usage of the first one does not cover it."""
        self.usage, self.continued = None, True

    @property
    def used_tier(self) -> str | UnsetType | None:
        """The service tier the upstream named, in its last chunk."""
        return self._last.service_tier

    def close(self) -> bytes:
        """The last frames of a complete stream; UpstreamTruncated if a choice is unfinished."""
        if not self._choices or any(choice.finish_reason is None for choice in self._choices):
            raise UpstreamTruncated()
        if not self.form.include_usage:
            return DONE
        last = self._stamp(ChatChunk(system_fingerprint=self._last.system_fingerprint), [])
        usage = self.usage or (
            self._estimate(self.delivered.text_quarter_tokens) if self._estimate else CompletionUsage()
        )
        last.usage = usage.public()
        return encode_data(_encoder.encode(last)) + DONE

    def _text(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        """The frame of a chunk that has only a fragment of text for an open choice; empty for any other chunk.

        Such a frame differs from the last one only in its text, so it is made from the template. This takes two fifths
        of the time of the general way.
        """
        delta, index = part.delta, part.index
        text = delta.content
        if (
            type(text) is not str
            or not text
            or not 0 <= index < len(self._choices)
            or part.finish_reason is not None
            or part.logprobs is not None
            or chunk.obfuscation is not UNSET
            or self.form.obfuscation == "on"
        ):
            return b""
        choice, encoded = self._choices[index], _encoder.encode(text)
        if (
            not choice.opened
            or choice.finish_reason is not None
            or _encoder.encode(delta) != b'{"content":%b}' % encoded
        ):
            return b""
        template = self._template
        if (
            template is None
            or template.index != index
            or template.origin != (chunk.system_fingerprint, chunk.service_tier)
        ):
            template = self._template = self._make_template(chunk, index)
        self._last = self._plain = chunk
        choice.has_content = self.content_started = True
        self.delivered.text_quarter_tokens += len(text) if text.isascii() else text_units(text)
        return b"%b%b%b" % (template.before, encoded, template.after)

    def feed_texts(self, like: ChatChunk, texts: list[str], below: float) -> bytes:
        """The frames of chunks that are equal to `like`, the last chunk of `feed`, except for their texts.

        Returns b"" and changes nothing if the template does not fit, or if the quarter tokens delivered would reach
        `below`.
        """
        template = self._template
        if like is not self._plain or template is None or "" in texts:
            return b""
        delivered = self.delivered
        quarters = delivered.text_quarter_tokens
        for text in texts:
            quarters += len(text) if text.isascii() else text_units(text)
        if quarters >= below:
            return b""
        if len(texts) == 1:
            frames = b"%b%b%b" % (template.before, _encoder.encode(texts[0]), template.after)
        else:
            frames = b"".join([b"%b%b%b" % (template.before, _encoder.encode(text), template.after) for text in texts])
        self._last, delivered.text_quarter_tokens = like, quarters  # after the encoding, which may raise
        return frames

    def _make_template(self, chunk: ChatChunk, index: int) -> _FrameTemplate:
        frame = self._encode(chunk, ChunkChoice(index, Delta(content=PLACEHOLDER)))
        before, _, after = frame.partition(_encoder.encode(PLACEHOLDER))
        return _FrameTemplate(index, (chunk.system_fingerprint, chunk.service_tier), before, after)

    def _choice(self, index: int, chunk: ChatChunk, frames: list[bytes]) -> _ChoiceEncoder:
        """The encoder of choice `index`; opens every choice before it first, because SDK helpers need that."""
        if not 0 <= index < 128:
            raise UpstreamInvalidResponse()
        while len(self._choices) <= index:
            self._choices.append(_ChoiceEncoder(len(self._choices), self.form))
            if len(self._choices) <= index:
                frames.extend(self._encode(chunk, part) for part in self._choices[-1].open(tools=False))
        return self._choices[index]

    def _count(self, delta: Delta) -> None:
        quarters = 0
        if delta.content:
            quarters += text_units(delta.content)
        if delta.reasoning_content:
            quarters += text_units(delta.reasoning_content)
        if delta.tool_calls:
            quarters += sum(len(call.function.arguments or "") for call in delta.tool_calls if call.function)
        if delta.function_call:
            quarters += len(delta.function_call.arguments or "")
        if delta.refusal:
            quarters += text_units(delta.refusal)
        if quarters:
            self.delivered.text_quarter_tokens += quarters
            self.content_started = True

    def _encode(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        out = self._stamp(chunk, [part])
        return encode_data(_encoder.encode(out))

    def _stamp(self, chunk: ChatChunk, choices: list[ChunkChoice]) -> ChatChunk:
        form = self.form
        self._last = chunk
        return ChatChunk(
            form.id,
            "chat.completion.chunk",
            form.created,
            form.model,
            choices,
            chunk.system_fingerprint,
            service_tier(chunk.service_tier, form.service_tier),
            None if form.include_usage else UNSET,
            UNSET,
            self._padding(chunk),
        )

    def _padding(self, chunk: ChatChunk) -> str | UnsetType:
        kind = self.form.obfuscation
        if kind == "upstream" or (kind == "on" and chunk.obfuscation is not UNSET):
            return chunk.obfuscation
        return padding() if kind == "on" else UNSET

    def _moderation(self, chunk: ChatChunk) -> bytes:
        if chunk.moderation is UNSET:
            return b""  # only usage, or the empty first chunk of some hosts
        out = self._stamp(chunk, [])
        out.moderation = chunk.moderation
        return encode_data(_encoder.encode(out))


class _ChoiceEncoder:
    """One choice of a stream: its role, its tool numbers, its finish."""

    __slots__ = ("finish_reason", "form", "has_content", "index", "opened", "tools")

    def __init__(self, index: int, form: AnswerForm) -> None:
        self.index = index
        self.form = form
        self.finish_reason: str | None = None
        self.opened = False
        self.has_content = False
        self.tools = _ToolNumbering()

    def feed(self, part: ChunkChoice) -> list[ChunkChoice]:
        """The parts to send for `part`: role first, finish in its own chunk."""
        delta = part.delta
        if (
            self.opened
            and part.finish_reason is None
            and delta.role is UNSET
            and not delta.tool_calls
            and self.finish_reason is None
        ):
            # The most frequent case: a fragment of text in an open choice is sent unchanged.
            self.has_content = True
            return [part] if _has_content(delta) or part.logprobs is not None else []
        return self._feed_any(part)

    def _feed_any(self, part: ChunkChoice) -> list[ChunkChoice]:
        if self.finish_reason is not None:
            return []
        out: list[ChunkChoice] = []
        delta = part.delta
        delta.role = UNSET
        if delta.tool_calls is None:
            delta.tool_calls = UNSET
        if not self.opened:
            out += self.open(tools=bool(delta.tool_calls))
        if delta.tool_calls:
            delta.tool_calls = self.tools.number(delta.tool_calls)
        if self.form.legacy_functions and delta.tool_calls:
            delta.function_call, delta.tool_calls = _legacy(delta.tool_calls), UNSET
        if _has_content(delta) or part.logprobs is not None:
            self.has_content = True
            out.append(ChunkChoice(self.index, delta, part.logprobs, None))
        if part.finish_reason is not None:
            out.append(self._finish(part.finish_reason))
        return out

    def open(self, *, tools: bool) -> list[ChunkChoice]:
        """The role chunk; its content is null if the answer begins with a tool call."""
        self.opened = True
        return [ChunkChoice(self.index, Delta(role="assistant", content=None if tools else "", refusal=None))]

    def _finish(self, reason: str) -> ChunkChoice:
        called = self.tools.count > 0
        self.finish_reason = finish_reason(
            reason, called=called, has_content=self.has_content, legacy=self.form.legacy_functions
        )
        return ChunkChoice(self.index, finish_reason=self.finish_reason)


class _ToolNumbering:
    """Numbers tool calls from 0 in the order of their first fragments, and names each only once."""

    __slots__ = ("_open", "count")

    def __init__(self) -> None:
        self.count = 0
        self._open: dict[int, tuple[int, str]] = {}  # upstream index → our index, upstream id

    def number(self, fragments: list[ToolCallDelta]) -> list[ToolCallDelta]:
        return [self._one(fragment) for fragment in fragments]

    def _one(self, fragment: ToolCallDelta) -> ToolCallDelta:
        upstream_index = fragment.index if fragment.index is not UNSET else self._guess(fragment)
        known = self._open.get(upstream_index)
        if known is None or (fragment.id and known[1] and fragment.id != known[1]):
            return self._start(upstream_index, fragment)
        fragment.index = known[0]
        fragment.id = fragment.type = UNSET
        if fragment.function:
            fragment.function.name = UNSET
            fragment.function.arguments = fragment.function.arguments or ""
        return fragment

    def _guess(self, fragment: ToolCallDelta) -> int:
        # Without an index, a fragment with an id starts a call, and one without an id belongs to the newest call.
        newest = max(self._open, default=0)
        return newest + 1 if fragment.id and self._open else newest

    def _start(self, upstream_index: int, fragment: ToolCallDelta) -> ToolCallDelta:
        upstream_id = fragment.id or ""
        self._open[upstream_index] = (self.count, upstream_id)
        fragment.index, self.count = self.count, self.count + 1
        fragment.id = _call_id(upstream_id)
        fragment.type = "custom" if fragment.custom else "function"
        if not fragment.custom:
            function = fragment.function or FunctionCall()
            fragment.function = FunctionCall(name=function.name or "", arguments=function.arguments or "")
        return fragment


def _call_id(upstream_id: str) -> str:
    """The upstream's id if clients send it back unchanged, else a new one."""
    plain = upstream_id.replace("-", "").replace("_", "")
    return upstream_id if len(upstream_id) <= 64 and plain.isalnum() and plain.isascii() else tool_call_id()


def _has_content(delta: Delta) -> bool:
    """Whether a delta has more than an empty content."""
    if delta.content:
        return True
    return any(
        value is not UNSET and value is not None and value != ""
        for value in (
            delta.reasoning_content,
            delta.refusal,
            delta.tool_calls,
            delta.function_call,
            delta.audio,
            delta.annotations,
            delta.reasoning_details,
            delta.thinking_blocks,
            delta.images,
        )
    )


def _legacy(fragments: list[ToolCallDelta]) -> FunctionCall | UnsetType:
    """The fragments of the first call as `function_call`; that form has no field for further calls."""
    first = [fragment.function or FunctionCall() for fragment in fragments if fragment.index == 0]
    if not first:
        return UNSET
    return FunctionCall(name=first[0].name or UNSET, arguments="".join(call.arguments or "" for call in first))


def finish_reason(reason: str, *, called: bool, has_content: bool, legacy: bool = False) -> str:
    """The wire's finish reason; UpstreamInvalidResponse for an unknown one that ends an empty answer."""
    if reason not in FINISH_REASONS:
        if not (has_content or called):
            raise UpstreamInvalidResponse(detail=f"unknown finish reason {reason!r}")
        reason = "stop"
    if called and reason in {"stop", "function_call", "tool_calls"}:
        return "function_call" if legacy else "tool_calls"
    return reason


def service_tier(used: str | UnsetType | None, asked: str | None) -> str | UnsetType:
    """The tier in an answer: the one the upstream reported, else the requested one in the terms of answers."""
    if used is not UNSET and used is not None:
        return used
    return UNSET if asked is None else {"auto": "default", "fast": "priority"}.get(asked, asked)


def encode_completion(answer: ChatCompletion, form: AnswerForm) -> bytes:
    """The JSON document of a whole answer; UpstreamInvalidResponse if it has no choice, or no valid finish."""
    if not answer.choices:
        raise UpstreamInvalidResponse(detail="no choices")
    answer.id, answer.object, answer.created, answer.model = form.id, "chat.completion", form.created, form.model
    answer.service_tier = service_tier(answer.service_tier, form.service_tier)
    answer.metadata = form.metadata
    if answer.usage is not None:
        answer.usage = answer.usage.public()
    if len(answer.choices) > 1:
        answer.choices.sort(key=lambda choice: choice.index)
    for position, choice in enumerate(answer.choices):
        choice.index = position
        message = choice.message
        _normalize_message(message, legacy=form.legacy_functions)
        called = bool(message.tool_calls or message.function_call)
        has_content = bool(message.content or message.refusal or message.reasoning_content)
        choice.finish_reason = finish_reason(
            choice.finish_reason or "", called=called, has_content=has_content, legacy=form.legacy_functions
        )
    return _encoder.encode(answer)


def _normalize_message(message: ChatMessage, *, legacy: bool) -> None:
    message.role = "assistant"
    if message.annotations is None:
        message.annotations = []
    if message.function_call is None:
        message.function_call = UNSET
    if not message.reasoning_content:
        message.reasoning_content = UNSET
    if not message.tool_calls:
        message.tool_calls = UNSET
        return
    message.content = message.content or None
    for call in message.tool_calls:
        _normalize_call(call)
    first = message.tool_calls[0].function
    if legacy and first:
        message.function_call, message.tool_calls = first, UNSET


def _normalize_call(call: ToolCall) -> None:
    call.id = _call_id(call.id)
    call.type = "custom" if call.custom else "function"
    if call.function:
        call.function.arguments = call.function.arguments or "{}"


def quarter_tokens_of(answer: ChatCompletion) -> int:
    """Quarter tokens of text, reasoning and arguments in a whole answer."""
    quarters = 0
    for choice in answer.choices:
        message = choice.message
        texts = [message.content, message.refusal, message.reasoning_content]
        if message.tool_calls:
            texts += [call.function.arguments for call in message.tool_calls if call.function]
        quarters += sum(text_units(text) for text in texts if text)
    return quarters
