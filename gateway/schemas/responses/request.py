"""The fields of `POST /v1/responses` (docs/fields.md, "Responses"); `decoding` reads a body into them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from gateway.schemas.chat_options import Moderation
from gateway.schemas.chat_request import Metadata, Tokens
from gateway.schemas.request_fields import Core, Hint, RequestFields, Sampling, Semantic
from gateway.schemas.responses.options import (
    CacheOptions,
    ChoiceObject,
    ReasoningOptions,
    ResponsesStreamOptions,
    TextOptions,
)

Include = Literal[
    "reasoning.encrypted_content", "message.output_text.logprobs", "message.input_image.image_url",
    "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
    "code_interpreter_call.outputs", "computer_call_output.output.image_url",
]  # fmt: skip


class ResponsesRequest(RequestFields, kw_only=True):
    """A valid Responses request; an absent or null field is None."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    input: Core[str | Annotated[list[Raw], Meta(min_length=1, max_length=100_000)]]
    instructions: Core[str | None] = None
    stream: Core[bool | None] = None
    stream_options: Core[ResponsesStreamOptions | None] = None
    max_output_tokens: Core[Tokens | None] = None
    temperature: Sampling[Annotated[float, Meta(ge=0, le=2)] | None] = None
    top_p: Sampling[Annotated[float, Meta(ge=0, le=1)] | None] = None
    top_logprobs: Semantic[Annotated[int, Meta(ge=0, le=20)] | None] = None
    tools: Semantic[Annotated[list[Raw], Meta(max_length=128)] | None] = None
    tool_choice: Semantic[Literal["none", "auto", "required"] | ChoiceObject | None] = None
    parallel_tool_calls: Hint[bool | None] = None
    max_tool_calls: Hint[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None] = None
    text: Semantic[TextOptions | None] = None
    reasoning: Core[ReasoningOptions | None] = None
    include: Hint[list[Include] | None] = None
    truncation: Hint[Literal["auto", "disabled"] | None] = None
    service_tier: Hint[Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None] = None
    prompt_cache_key: Hint[str | None] = None
    prompt_cache_options: Hint[CacheOptions | None] = None
    prompt_cache_retention: Hint[Literal["in_memory", "in-memory", "24h"] | None] = None
    safety_identifier: Hint[Annotated[str, Meta(max_length=128)] | None] = None
    user: Hint[str | None] = None
    metadata: Hint[Annotated[Metadata, Meta(max_length=16)] | None] = None
    moderation: Semantic[Moderation | None] = None
    store: Hint[bool | None] = None
    background: Core[bool | None] = None
    previous_response_id: Core[str | None] = None
    conversation: Core[Raw | UnsetType] = UNSET
    prompt: Core[Raw | UnsetType] = UNSET
    context_management: Core[Raw | UnsetType] = UNSET

    def wants(self, included: Include) -> bool:
        """Whether the answer shall include something."""
        return self.include is not None and included in self.include
