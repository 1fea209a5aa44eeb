"""What a caller asks of a chat model: the body of `POST /v1/chat/completions` (docs/fields.md, "Chat").

`decode_chat_request(body)` is the only way in; it raises nothing but `BadRequest` errors. The request then has two
faces: typed attributes, which the gateway and translating providers read, and `fields`, every top-level field as it was
sent, which an OpenAI-compatible provider forwards. Null equals absence.
Sharp edge: `fields` is shared by all attempts of a call; a provider copies it before it replaces `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from gateway.errors import MissingParameter, UnsupportedParameter
from gateway.schemas.cache_marks import MARKS, marks_in
from gateway.schemas.chat_messages import (
    AudioPart,
    FilePart,
    FunctionChoice,
    FunctionDefinition,
    FunctionTool,
    ImagePart,
    Message,
    Named,
    NonEmpty,
    TextFormat,
    Tool,
    ToolChoice,
    UserMessage,
)
from gateway.schemas.chat_options import (
    AudioOutput,
    JSONSchemaFormat,
    Moderation,
    Prediction,
    PromptCacheOptions,
    ResponseFormat,
    StreamOptions,
    WebSearchOptions,
)
from gateway.schemas.chat_rules import (
    check_functions,
    check_history,
    check_max_tokens,
    check_tools,
    json_object,
)
from gateway.schemas.duplicate_keys import Examined, unexplained_names
from gateway.schemas.empty_fields import CONCERNED, drop_empty_fields, without_empty_calls
from gateway.schemas.forbidden import is_forbidden
from gateway.schemas.native_request import NativeRequest
from gateway.schemas.request_fields import NULL, OWN, Core, Hint, RequestFields, Sampling, Semantic
from gateway.schemas.schema_errors import invalid
from gateway.schemas.validation import BodyDecoder

Tokens = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Stop = NonEmpty | Annotated[list[NonEmpty], Meta(max_length=4)]
Modalities = list[Literal["text", "audio"]]
TokenId = Annotated[str, Meta(pattern=r"^[0-9]{1,10}$(?!\n)")]
Metadata = dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]]
Tools = Annotated[list[Tool], Meta(max_length=128)]


if TYPE_CHECKING:
    Native = NativeRequest | None
    Marks = frozenset[str]
else:
    Native = Marks = Raw  # as in `RequestFields`: a caller's field of this name is unknown, and is overwritten

#: Content parts that are semantic demands of their own.
_MEDIA: Mapping[type, str] = {ImagePart: "image_url", AudioPart: "input_audio", FilePart: "file"}


class ChatRequest(RequestFields, kw_only=True):
    """A valid chat request; an absent or null field is None. In `fields`, legacy functions are written as tools."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    messages: Core[Annotated[list[Message], Meta(min_length=1, max_length=100_000)]]
    stream: Core[bool | None] = None
    stream_options: Core[StreamOptions | None] = None
    temperature: Sampling[Annotated[float, Meta(ge=0, le=2)] | None] = None
    top_p: Sampling[Annotated[float, Meta(ge=0, le=1)] | None] = None
    max_tokens: Core[Tokens | None] = None
    max_completion_tokens: Core[Tokens | None] = None
    stop: Sampling[Stop | None] = None
    n: Semantic[Annotated[int, Meta(ge=1, le=128)] | None] = None
    presence_penalty: Sampling[Penalty | None] = None
    frequency_penalty: Sampling[Penalty | None] = None
    logit_bias: Semantic[dict[TokenId, Annotated[int, Meta(ge=-100, le=100)]] | None] = None
    logprobs: Semantic[bool | None] = None
    top_logprobs: Semantic[Annotated[int, Meta(ge=0, le=20)] | None] = None
    seed: Sampling[Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None] = None
    tools: Semantic[Tools | None] = None
    tool_choice: Semantic[ToolChoice | None] = None
    parallel_tool_calls: Hint[bool | None] = None
    functions: Semantic[Annotated[list[FunctionDefinition], Meta(max_length=128)] | None] = None
    function_call: Semantic[Literal["none", "auto"] | Named | None] = None
    response_format: Semantic[ResponseFormat | None] = None
    # Core, because each dialect has its own mapping.
    reasoning_effort: Core[Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None] = None
    verbosity: Hint[Literal["low", "medium", "high"] | None] = None
    modalities: Semantic[Modalities | None] = None
    audio: Semantic[AudioOutput | None] = None
    prediction: Hint[Prediction | None] = None
    web_search_options: Semantic[WebSearchOptions | None] = None
    service_tier: Hint[Literal["auto", "default", "flex", "scale", "priority", "fast"] | None] = None
    prompt_cache_key: Hint[str | None] = None
    prompt_cache_options: Hint[PromptCacheOptions | None] = None
    prompt_cache_retention: Hint[Literal["in_memory", "24h"] | None] = None
    safety_identifier: Hint[Annotated[str, Meta(max_length=128)] | None] = None
    user: Hint[str | None] = None
    metadata: Hint[Annotated[Metadata, Meta(max_length=16)] | None] = None
    store: Hint[bool | None] = None
    moderation: Semantic[Moderation | None] = None
    #: The request as it was sent in another dialect.
    native: Native = None
    #: Names of the marks for the prompt cache on parts of messages: `prompt_cache_breakpoint`, `cache_control`.
    cache_marks: Marks = frozenset()

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """The names of unknown fields of the dialect in which it was sent."""
        sent = self.native.unknown if self.native is not None else None
        return super().unknown_fields if sent is None else sent

    @property
    def max_output(self) -> int | None:
        """Most tokens each choice may have, in whichever spelling it came."""
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    @property
    def wants_obfuscation(self) -> bool:
        """Whether the chunks of a stream keep the upstream's padding."""
        return self.stream_options is None or self.stream_options.include_obfuscation is not False

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        return self.n or 1

    @property
    def legacy_functions(self) -> bool:
        """Whether the answer must use `function_call`, since the request used `functions`."""
        return self.functions is not None

    @property
    def as_tools(self) -> list[Tool]:
        """The tools, legacy functions among them."""
        if self.functions is None:
            return self.tools or []
        return [FunctionTool(function=function) for function in self.functions]

    @property
    def as_tool_choice(self) -> ToolChoice | None:
        """The tool choice, a legacy `function_call` among them."""
        if isinstance(self.function_call, Named):
            return FunctionChoice(function=self.function_call)
        return self.tool_choice if self.function_call is None else self.function_call

    def demands(self) -> frozenset[str]:
        """The semantic fields in a form that an upstream must honour or refuse; media parts by their type."""
        asked = {name for name in SEMANTIC_FIELDS if getattr(self, name) not in (None, False)}
        if self.choices == 1:
            asked.discard("n")
        if self.as_tool_choice in (None, "auto", "none"):
            asked.discard("tool_choice")
        if isinstance(self.response_format, TextFormat):
            asked.discard("response_format")
        if "audio" not in (self.modalities or ()):
            asked.discard("modalities")
        return frozenset(asked.union(self._media()))

    def _media(self) -> list[str]:
        """The `type` of every part that is not text."""
        return [
            _MEDIA[type(part)]
            for message in self.messages
            if isinstance(message, UserMessage) and isinstance(message.content, list)
            for part in message.content
            if type(part) in _MEDIA
        ]

    def unsupported(self, demand: str) -> UnsupportedParameter:
        param = "messages" if demand in _MEDIA.values() else demand
        return UnsupportedParameter(f"This model does not support '{demand}'.", param=param)


SEMANTIC_FIELDS = frozenset(name for name, kind in ChatRequest.field_classes.items() if kind == "semantic")

# Known objects in which an upstream might look for an address; the others are free text, schemas or plain values.
# `stream_options` is not among them: providers write it anew from the typed view.
_SEARCHED = frozenset({"audio", "web_search_options", "prompt_cache_options", "moderation", "prediction"})
_PLAIN = frozenset(ChatRequest.field_classes) - _SEARCHED  # a request of these alone, as nearly all are, hides nothing
_USUAL = _PLAIN - CONCERNED
_SEARCHED_WITH_MESSAGES = _SEARCHED | {"messages"}
_messages = msgspec.json.Decoder(list[Message])
_NO_MARKS: frozenset[str] = frozenset()

_body = BodyDecoder(
    ChatRequest,
    own=OWN,
    large_fields=frozenset({"messages", "tools", "functions", "response_format", "prediction"}),
)


def decode_chat_request(body: bytes | Examined) -> ChatRequest:
    """The request in `body`; raises only BadRequest errors, each with the wire's code and the exact param.

    A body of 1 KB with four messages takes 4 µs: 1.2 the typed view, 0.8 the field table, 0.8 the rules, 0.4 the keys.
    """
    request, fields = _body.decode(body)
    request.body, request.native = body if isinstance(body, bytes) else body.content, None
    if isinstance(body, Examined) and body.tools is not None:
        request.tools = _own_tools(body)
    keys, is_usual = len(fields), _USUAL.issuperset(fields)
    if not is_usual or NULL in fields.values():
        drop_empty_fields(request, fields)
    empty_calls = _check(request)
    names = unexplained_names(body, keys + _least_keys(request))
    request.cache_marks = marks_in(request.messages) if names and not MARKS.isdisjoint(names) else _NO_MARKS
    if names and any(map(is_forbidden, names)):
        request.take_fields(fields, searched=_SEARCHED_WITH_MESSAGES)
        request.messages = _messages.decode(fields["messages"])
    elif is_usual or _PLAIN.issuperset(fields):
        request.fields, request.extra, request.dropped = fields, (), ()
    else:
        request.take_fields(fields, searched=_SEARCHED)
    if request.functions is not None or request.function_call is not None:
        _write_as_tools(request)
    if empty_calls:
        request.fields["messages"] = without_empty_calls(request.fields["messages"])
    return request


def _own_tools(own: Examined) -> list[Tool]:
    """The tools of a request of the gateway's own: 31 µs for 24 of them with 1,700 bytes each; to decode takes 104."""
    try:
        return msgspec.convert(own.tools, Tools)
    except msgspec.ValidationError:  # a tool is invalid, or its parameters are no JSON text yet
        assert own.fields is not None
        whole, _ = _body.decode(Examined(msgspec.json.encode(own.fields), own.names, own.fields))
        return whole.tools or []


def _least_keys(request: ChatRequest) -> int:
    """The number of keys below the top level that a valid request has at least; exact for plain text."""
    keys = 2 * len(request.messages)  # `check_history` has made sure that an answer has a key beside its role
    options = request.stream_options
    if options is not None:
        keys += (options.include_usage is not None) + (options.include_obfuscation is not None)
    return keys


def _check(request: ChatRequest) -> bool:
    """Raise the first broken rule; returns whether an answer has an empty list of tool calls.

    This runs on every request: each rule first asks whether its field is there.
    """
    if request.stream_options is not None and request.stream is not True:
        raise invalid("stream_options", "it is only allowed when 'stream' is true")
    if request.max_tokens is not None:
        check_max_tokens(request.max_tokens, request.max_completion_tokens)
    if request.top_logprobs is not None and request.logprobs is not True:
        raise invalid("top_logprobs", "it needs 'logprobs' to be true")
    if request.modalities is not None and "audio" in request.modalities and request.audio is None:
        raise MissingParameter("Missing required parameter: 'audio', which the audio modality needs.", param="audio")
    if isinstance(request.response_format, JSONSchemaFormat):
        schema = request.response_format.json_schema
        schema.schema = json_object(schema.schema, "response_format.json_schema.schema")
    if request.tools is not None or request.tool_choice is not None:
        check_tools(request.tools, request.tool_choice)
    if request.functions is not None or request.function_call is not None:
        check_functions(request.functions, request.function_call, beside_tools=request.tools is not None)
    return check_history(request.messages)


def _write_as_tools(request: ChatRequest) -> None:
    """Put legacy functions into `fields` as the tools they amount to."""
    fields = request.fields
    if request.functions is not None:
        functions = msgspec.json.decode(fields.pop("functions"), type=list[Raw])
        fields["tools"] = Raw(b"[%b]" % b",".join(b'{"type":"function","function":%b}' % bytes(f) for f in functions))
    if request.function_call is not None:
        fields.pop("function_call")
        fields["tool_choice"] = Raw(msgspec.json.encode(request.as_tool_choice))
