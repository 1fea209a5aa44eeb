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


def later_reason(earlier: str | None, reason: str | None) -> str | None:
    """The finish reason of a choice that sent `earlier`, and then `reason`; None is no reason.

    The last known reason counts. Some servers send an additional "stop" after every chunk, so "stop" does not replace
    a more specific one.
    """
    if earlier is None or reason is None:
        return earlier if reason is None else reason
    if reason not in FINISH_REASONS or (reason == "stop" and earlier in FINISH_REASONS):
        return earlier
    return reason


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
    image_tokens: int | UnsetType = UNSET


class CompletionUsage(Struct):
    """Token accounting of one chat call, in tokens; cached and cache-write tokens lie inside `prompt_tokens`.

    The fields after the details are for the call's record, and no client ever sees them.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails = field(default_factory=PromptTokensDetails)
    completion_tokens_details: CompletionTokensDetails = field(default_factory=CompletionTokensDetails)
    provider_cost: int | UnsetType = UNSET  # what the upstream says it charges for the call, in nano USD
    audio_seconds: float | UnsetType = UNSET  # of audio in the prompt

    cached_audio_tokens: int | UnsetType = UNSET  # the part of `cached_tokens` that is audio
    web_searches: int | UnsetType = UNSET  # that the upstream made and charges for
    search_units: int | UnsetType = UNSET  # Cohere's unit of a search

    @property
    def is_public(self) -> bool:
        """Whether it has no field that is for the call's record alone."""
        return (
            self.provider_cost is UNSET
            and self.audio_seconds is UNSET
            and self.cached_audio_tokens is UNSET
            and self.web_searches is UNSET
            and self.search_units is UNSET
        )

    def bounded(self) -> CompletionUsage:
        """The same with parts that fit into their totals, and the sum as `total_tokens`."""
        prompt, completion = self.prompt_tokens, self.completion_tokens
        total = prompt + completion
        inside, outside = self.prompt_tokens_details, self.completion_tokens_details
        if inside != _NO_PARTS_IN:
            inside = _parts_of_prompt(inside, prompt)
        if outside != _NO_PARTS_OUT:
            outside = _parts_of_completion(outside, completion)
        if (total, inside, outside) == (self.total_tokens, self.prompt_tokens_details, self.completion_tokens_details):
            return self
        return structs.replace(
            self, total_tokens=total, prompt_tokens_details=inside, completion_tokens_details=outside
        )

    def is_plain(self) -> bool:
        """Whether it counts text alone, has the sum as its total, and nothing that is for the call's record alone."""
        return (
            self.total_tokens == self.prompt_tokens + self.completion_tokens
            and self.prompt_tokens_details == _NO_PARTS_IN
            and self.completion_tokens_details == _NO_PARTS_OUT
            and self.provider_cost is UNSET  # as in `is_public`, whose call takes longer than its tests
            and self.audio_seconds is UNSET
            and self.cached_audio_tokens is UNSET
            and self.web_searches is UNSET
            and self.search_units is UNSET
        )

    def public(self) -> CompletionUsage:
        """What a client may see of it: `bounded`, without the fields of the call's record."""
        if self.is_plain():  # most counts: 0.1 µs, others 3 µs
            return self
        usage = self.bounded()
        if usage.is_public:
            return usage
        return CompletionUsage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.total_tokens,
            usage.prompt_tokens_details,
            usage.completion_tokens_details,
        )


_NO_PARTS_IN = PromptTokensDetails()
_NO_PARTS_OUT = CompletionTokensDetails()


def take(wanted: int | UnsetType, available: int) -> tuple[int, int]:
    """`wanted` limited to 0 … `available`, and the rest of `available`; UNSET takes nothing."""
    taken = 0 if wanted is UNSET else max(0, min(wanted, available))
    return taken, available - taken


def _parts_of_prompt(details: PromptTokensDetails, prompt: int) -> PromptTokensDetails:
    """Cached and written tokens share the prompt, and so do audio, image and text tokens."""
    cached, rest = take(details.cached_tokens, prompt)
    write, _ = take(details.cache_write_tokens, rest)
    audio, rest = take(details.audio_tokens, prompt)
    image, rest = take(details.image_tokens, rest)
    text, _ = take(details.text_tokens, rest)
    lives = details.cache_write_tokens_details
    if lives is not UNSET:
        long, rest = take(lives.ttl_12h_tokens, write)
        lives = CacheWriteDetails(take(lives.ttl_30m_tokens, rest)[0], long)
    return PromptTokensDetails(
        cached,
        audio,
        UNSET if details.cache_write_tokens is UNSET else write,
        UNSET if details.image_tokens is UNSET else image,
        UNSET if details.text_tokens is UNSET else text,
        lives,
    )


def _parts_of_completion(details: CompletionTokensDetails, completion: int) -> CompletionTokensDetails:
    """Reasoning, audio, image and text tokens share the completion."""
    reasoning, rest = take(details.reasoning_tokens, completion)
    audio, rest = take(details.audio_tokens, rest)
    image, rest = take(details.image_tokens, rest)
    text, _ = take(details.text_tokens, rest)
    return CompletionTokensDetails(
        reasoning,
        audio,
        details.accepted_prediction_tokens,
        details.rejected_prediction_tokens,
        UNSET if details.text_tokens is UNSET else text,
        UNSET if details.image_tokens is UNSET else image,
    )


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
    def continues(self) -> bool:
        """Whether it adds content to the answer: one that ended before this delta has not ended."""
        return bool(
            self.content
            or self.tool_calls
            or self.reasoning_content
            or self.refusal
            or self.function_call
            or (self.audio is not UNSET and self.audio is not None)
            or (self.images is not UNSET and self.images is not None)
        )

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
        """The end of one choice: `stop`, `length`, `tool_calls`, `content_filter` or `function_call`."""
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
