"""What a chat model answers: one `ChatCompletion`, or a stream of `ChatChunk`.

These are the wire's own shapes (OpenAI's), and also the only shapes providers speak: every dialect is translated into
them. The classmethods of `ChatChunk` build the usual ones::

    yield ChatChunk.text("Hello")
    yield ChatChunk.finish("stop")
    yield ChatChunk.with_usage(CompletionUsage(prompt_tokens=7, completion_tokens=2, total_tokens=9))

Sharp edge: `id`, `created` and `model` are the gateway's; whatever a provider puts there is replaced.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


class CacheWriteDetails(Struct):
    """Parts of `cache_write_tokens`, by how long the upstream keeps them."""

    ttl_30m_tokens: int = 0
    ttl_12h_tokens: int = 0


class PromptTokensDetails(Struct):
    """Parts of `prompt_tokens`; the optional ones are written only when known."""

    cached_tokens: int = 0
    audio_tokens: int = 0
    cache_write_tokens: int | UnsetType = UNSET
    image_tokens: int | UnsetType = UNSET
    text_tokens: int | UnsetType = UNSET
    cache_write_tokens_details: CacheWriteDetails | UnsetType = UNSET


class CompletionTokensDetails(Struct):
    """Parts of `completion_tokens`."""

    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    text_tokens: int | UnsetType = UNSET


class CompletionUsage(Struct):
    """Token accounting of one chat call, in tokens; cached and cache-write tokens lie inside `prompt_tokens`.

    The last two are for the call's record, and no client ever sees them.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails = field(default_factory=PromptTokensDetails)
    completion_tokens_details: CompletionTokensDetails = field(default_factory=CompletionTokensDetails)
    provider_cost: int | UnsetType = UNSET  # what the upstream says it charges for the call, in nano USD
    audio_seconds: float | UnsetType = UNSET  # of sound in the prompt

    def public(self) -> CompletionUsage:
        """What a client may see of it."""
        if self.provider_cost is UNSET and self.audio_seconds is UNSET:
            return self
        return structs.replace(self, provider_cost=UNSET, audio_seconds=UNSET)


class FunctionCall(Struct, omit_defaults=True):
    """Name and JSON text of arguments; in a stream each fragment carries a part."""

    name: str | UnsetType | None = UNSET
    arguments: str | UnsetType | None = UNSET


class CustomCall(Struct, omit_defaults=True):
    """Name and free-form input of a custom tool."""

    name: str | UnsetType | None = UNSET
    input: str | UnsetType | None = UNSET


class ToolCallDelta(Struct, omit_defaults=True):
    """A fragment of one tool call; `id`, `type` and the name come once, with the first fragment."""

    index: int | UnsetType = UNSET
    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    function: FunctionCall | UnsetType | None = UNSET
    custom: CustomCall | UnsetType | None = UNSET
    extra_content: Raw | UnsetType = UNSET


class Delta(Struct, omit_defaults=True):
    """What one chunk adds to a message."""

    role: str | UnsetType | None = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType | None = UNSET
    function_call: FunctionCall | UnsetType | None = UNSET
    audio: Raw | UnsetType = UNSET
    annotations: Raw | UnsetType = UNSET
    reasoning_details: Raw | UnsetType = UNSET
    thinking_blocks: Raw | UnsetType = UNSET
    images: Raw | UnsetType = UNSET

    @property
    def other_parts(self) -> tuple[object, ...]:
        """The values of all content fields except `content`; UNSET or None where absent."""
        return (
            self.reasoning_content,
            self.refusal,
            self.tool_calls,
            self.function_call,
            self.audio,
            self.annotations,
            self.reasoning_details,
            self.thinking_blocks,
            self.images,
        )


class ChunkChoice(Struct):
    """One choice's part of a chunk; `logprobs` and `finish_reason` are null until known."""

    index: int = 0
    delta: Delta = field(default_factory=Delta)
    logprobs: Any = None  # as the upstream gave it; null until known
    finish_reason: str | None = None


class ChatChunk(Struct):
    """One frame of a streamed chat answer."""

    id: str = ""
    object: str = "chat.completion.chunk"
    created: int = 0
    model: str = ""
    choices: list[ChunkChoice] = field(default_factory=list)
    system_fingerprint: str | None = None
    service_tier: str | UnsetType | None = UNSET
    usage: CompletionUsage | UnsetType | None = UNSET
    moderation: Raw | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET

    @classmethod
    def text(cls, content: str, *, index: int = 0) -> ChatChunk:
        """A fragment of visible text."""
        return cls(choices=[ChunkChoice(index=index, delta=Delta(content=content))])

    @classmethod
    def reasoning(cls, content: str, *, index: int = 0) -> ChatChunk:
        """A fragment of visible reasoning, kept apart from the answer's text."""
        return cls(choices=[ChunkChoice(index=index, delta=Delta(reasoning_content=content))])

    @classmethod
    def tool_call(
        cls, position: int, *, id: str | None = None, name: str | None = None, arguments: str = "", index: int = 0
    ) -> ChatChunk:
        """A fragment of the tool call at `position`: with `id` and `name` it starts one, without it goes on."""
        function = FunctionCall(name=name if name is not None else UNSET, arguments=arguments)
        call = ToolCallDelta(index=position, function=function)
        if id is not None:
            call.id, call.type = id, "function"
        return cls(choices=[ChunkChoice(index=index, delta=Delta(tool_calls=[call]))])

    @classmethod
    def finish(cls, reason: str, *, index: int = 0) -> ChatChunk:
        """The end of one choice; `reason` is one of FINISH_REASONS."""
        return cls(choices=[ChunkChoice(index=index, finish_reason=reason)])

    @classmethod
    def with_usage(cls, usage: CompletionUsage) -> ChatChunk:
        """The call's token counts, totals so far: a later one replaces an earlier one."""
        return cls(usage=usage)


class ToolCall(Struct, omit_defaults=True):
    """A complete tool call."""

    id: str = ""
    type: str | UnsetType = UNSET
    function: FunctionCall | UnsetType | None = UNSET
    custom: CustomCall | UnsetType | None = UNSET
    extra_content: Raw | UnsetType = UNSET


class ChatMessage(Struct):
    """The assistant's message of a complete answer."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    annotations: Any = field(default_factory=list)
    tool_calls: list[ToolCall] | UnsetType | None = UNSET
    function_call: FunctionCall | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    audio: Raw | UnsetType = UNSET
    reasoning_details: Raw | UnsetType = UNSET
    thinking_blocks: Raw | UnsetType = UNSET
    images: Raw | UnsetType = UNSET


class Choice(Struct):
    """One complete choice."""

    index: int = 0
    message: ChatMessage = field(default_factory=ChatMessage)
    logprobs: Any = None  # as the upstream gave it; null until known
    finish_reason: str | None = None


class ChatCompletion(Struct):
    """A complete chat answer."""

    id: str = ""
    object: str = "chat.completion"
    created: int = 0
    model: str = ""
    choices: list[Choice] = field(default_factory=list)
    usage: CompletionUsage | None = None
    service_tier: str | UnsetType | None = UNSET
    system_fingerprint: str | None = None
    metadata: Raw | UnsetType = UNSET
    moderation: Raw | UnsetType = UNSET
