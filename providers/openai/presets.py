"""Vendors that speak OpenAI's dialect with an accent: where each is, and how it differs, as data.

A quirk is about a field, never about a vendor, so a new vendor is a row of this table. Only what differs before a
request leaves stands here; the habits of answers are understood whoever has them (`chunks`, `repair`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Raw, Struct, json

from gateway.schemas.chat_request import ChatRequest

OPENAI = "https://api.openai.com/v1"

#: Everything that a chat may ask for: the fields of the wire, and the parts of messages that are no text.
ALL_FIELDS = frozenset(ChatRequest.field_classes) | {"image_url", "input_audio", "file"}
#: In `chat_fields`: unknown fields are forwarded, too.
UNKNOWN = "*"

Instead = Mapping[str, Mapping[str, Raw]]  # by a field's value: the fields that say it there
ReasoningBack = Literal["as_sent", "as_reasoning", "with_tools"]


class Quirks(Struct, frozen=True, kw_only=True):
    """One vendor's accent; the defaults are OpenAI's own."""

    base_url: str = OPENAI
    refused: frozenset[str] = frozenset()  # known fields and parts that it cannot honour
    own: frozenset[str] | None = None  # unknown fields that it takes; None: whatever comes
    rename: Mapping[str, str] = {}  # by our name
    instead: Mapping[str, Instead] = {}  # by our name
    always: Mapping[str, Raw] = {}  # sent unless the caller says something of the kind
    no_stream_options: bool = False
    max_tokens_field: str = ""  # the only spelling it obeys
    developer_role: bool = True  # otherwise such messages are sent as `system`
    answer_keys: frozenset[str] | None = None  # what earlier answers may consist of; None: whatever comes
    reasoning_back: ReasoningBack = "as_sent"  # what becomes of their reasoning
    short_call_ids: bool = False  # ids of tool calls must be nine letters or digits
    flat_audio: bool = False  # `input_audio` is the base64 itself

    @property
    def has_accent(self) -> bool:
        """Whether messages are not simply what OpenAI would be sent."""
        if not self.developer_role or self.answer_keys is not None or self.short_call_ids or self.flat_audio:
            return True
        return self.reasoning_back != "as_sent"

    @property
    def chat_fields(self) -> frozenset[str] | None:
        """The fields it can honour, as a provider declares them."""
        if not self.refused and self.own is None:
            return None
        return ALL_FIELDS - self.refused | (self.own if self.own is not None else {UNKNOWN})


def field_value(field: str, value: object) -> Mapping[str, Raw]:
    """A field of a request, undecoded."""
    return {field: Raw(json.encode(value))}


def _words(field: str, words: Mapping[str, str]) -> Mapping[str, Instead]:
    """Values of a field that are called otherwise."""
    return {field: {ours: field_value(field, theirs) for ours, theirs in words.items()}}


# docs/providers/openai.md, "Presets". An effort that is not named here is sent as it is.
_THREE_LEVELS = _words("reasoning_effort", {"minimal": "low", "xhigh": "high", "max": "high"})
_DEEPSEEK_LEVELS: Instead = {
    "none": field_value("thinking", {"type": "disabled"}),
    **{
        ours: field_value("reasoning_effort", theirs)
        for ours, theirs in (("minimal", "low"), ("medium", "high"), ("xhigh", "max"))
    },
}
_OPENROUTER_LEVELS: Instead = {
    effort: field_value("reasoning", {"effort": "xhigh" if effort == "max" else effort})
    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
}
_GROQ_TIERS: Instead = {
    "default": field_value("service_tier", "on_demand"),
    "priority": field_value("service_tier", "performance"),
    "fast": field_value("service_tier", "performance"),
    "scale": {},
}

# What no server but OpenAI's own, or one that passes everything on to it, can do.
_OPENAI_ONLY = frozenset({"modalities", "audio", "web_search_options", "moderation"})
_OPENAI_HINTS = frozenset(
    {"verbosity", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"}
)

_MISTRAL_OWN = frozenset({
    "random_seed", "safe_prompt", "prompt_mode", "guardrails", "top_k", "min_tokens", "repetition_penalty",
    "prompt_logprobs", "top_prompt_logprobs",
})  # fmt: skip
_GROQ_OWN = frozenset({
    "reasoning_format", "include_reasoning", "citation_options", "compound_custom", "documents", "search_settings",
    "disable_tool_validation", "exclude_domains", "include_domains",
})  # fmt: skip

PRESETS: Mapping[str, Quirks] = {
    "mistral": Quirks(
        base_url="https://api.mistral.ai/v1",
        # It answers 422 to any field that it does not know.
        refused=_OPENAI_ONLY | _OPENAI_HINTS | {"logit_bias", "file", "service_tier", "store", "user"},
        own=_MISTRAL_OWN,
        rename={"seed": "random_seed"},
        instead=_words("tool_choice", {"required": "any"}),
        no_stream_options=True,
        max_tokens_field="max_tokens",
        developer_role=False,
        answer_keys=frozenset({"role", "content", "tool_calls", "prefix"}),
        short_call_ids=True,
        flat_audio=True,
    ),
    "deepseek": Quirks(
        base_url="https://api.deepseek.com",
        refused=_OPENAI_ONLY | {"n", "logit_bias", "seed", "input_audio", "file"},
        instead={"reasoning_effort": _DEEPSEEK_LEVELS},
        max_tokens_field="max_tokens",
        developer_role=False,
        reasoning_back="with_tools",
    ),
    "groq": Quirks(
        base_url="https://api.groq.com/openai/v1",
        # It answers 400 to any field that it does not know, and to those that none of its models can do.
        refused=_OPENAI_ONLY
        | _OPENAI_HINTS
        | {"n", "logit_bias", "logprobs", "top_logprobs", "prediction", "input_audio", "file"},
        own=_GROQ_OWN,
        instead={**_THREE_LEVELS, "service_tier": _GROQ_TIERS},
        no_stream_options=True,  # usage comes all the same, in `x_groq`
        developer_role=False,
        answer_keys=frozenset({"role", "content", "name", "tool_calls", "function_call", "reasoning"}),
        reasoning_back="as_reasoning",
    ),
    "xai": Quirks(
        base_url="https://api.x.ai/v1",
        refused=frozenset({"modalities", "audio", "moderation", "logit_bias", "input_audio"}),
        instead=_THREE_LEVELS,
    ),
    "together": Quirks(
        base_url="https://api.together.xyz/v1",
        refused=_OPENAI_ONLY | {"file"},
        instead=_THREE_LEVELS,
        max_tokens_field="max_tokens",
        developer_role=False,
    ),
    "openrouter": Quirks(
        base_url="https://openrouter.ai/api/v1",
        refused=frozenset({"moderation"}),
        instead={"reasoning_effort": _OPENROUTER_LEVELS},
        always=field_value("usage", {"include": True}),
    ),
    "vllm": Quirks(
        base_url="http://localhost:8000/v1",
        refused=_OPENAI_ONLY,
        instead=_THREE_LEVELS,
        developer_role=False,
    ),
    "ollama": Quirks(
        base_url="http://localhost:11434/v1",
        # It ignores what it does not know, so what a caller counts on has to be refused here.
        refused=_OPENAI_ONLY | {"n", "logit_bias", "input_audio", "file"},
        instead=_THREE_LEVELS,
        max_tokens_field="max_tokens",
        developer_role=False,
    ),
}
