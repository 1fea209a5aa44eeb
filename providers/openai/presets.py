"""Vendors that speak OpenAI's dialect with an accent: where each is, and how it differs, as data.

A quirk is about a field, never about a vendor, so a new vendor is a row of this table. Only what differs before a
request leaves stands here; the habits of answers are understood whoever has them (`chunks`, `repair`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Raw, Struct, json, structs

from gateway.schemas.chat_request import ChatRequest

from .cache_marks import Marks

OPENAI = "https://api.openai.com/v1"

#: Everything that a chat may ask for: the fields of the wire, and the parts of messages that are no text.
ALL_FIELDS = frozenset(ChatRequest.field_classes) | {"image_url", "input_audio", "file"}
Instead = Mapping[str, Mapping[str, Raw]]  # by a field's value: the fields that say it there
ReasoningBack = Literal["as_sent", "as_reasoning", "with_tools", "never"]


class Quirks(Struct, frozen=True, kw_only=True):
    """One vendor's accent; the defaults are OpenAI's own."""

    base_url: str = OPENAI
    refused: frozenset[str] = frozenset()  # known fields and parts that it cannot honour
    own: frozenset[str] = frozenset()  # fields of its own, which the gateway does not know and forwards to it
    rename: Mapping[str, str] = {}  # by our name
    instead: Mapping[str, Instead] = {}  # by our name
    always: Mapping[str, Raw] = {}  # sent unless the caller says something of the kind
    no_stream_options: bool = False
    max_tokens_field: str = ""  # the only spelling it obeys
    developer_role: bool = True  # otherwise such messages are sent as `system`
    answer_keys: frozenset[str] | None = None  # what earlier answers may consist of; None: whatever comes
    reasoning_back: ReasoningBack = "as_sent"  # what becomes of their reasoning
    keeps_signatures: bool = True  # of other vendors on calls of tools; it may be one of them
    short_call_ids: bool = False  # ids of tool calls must be nine letters or digits
    flat_audio: bool = False  # `input_audio` is the base64 itself
    cache_marks: Marks = "as_sent"  # on parts of messages: in whose words it takes them
    session_header: str = ""  # that names the session of a chat call, so that it finds its prompt cache
    keeps_cache_key: bool = False  # in the body, beside that header
    prefill: str = "unknown"  # how it goes on with a begun answer
    translates: bool = True  # it has `/audio/translations`
    beta_prefill: str | None = None  # the same at its address that ends with /beta

    @property
    def official(self) -> Quirks:
        """The same for OpenAI's own API, which refuses members of messages that it does not know."""
        return structs.replace(self, cache_marks="openai", reasoning_back="never", keeps_signatures=False)

    @property
    def has_accent(self) -> bool:
        """Whether messages are not simply what OpenAI would be sent."""
        if not self.developer_role or self.answer_keys is not None or self.short_call_ids or self.flat_audio:
            return True
        return self.reasoning_back != "as_sent" or not self.keeps_signatures

    @property
    def chat_fields(self) -> frozenset[str] | None:
        """The known fields it can honour, as a provider declares them."""
        return ALL_FIELDS - self.refused if self.refused else None


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
_CACHE_OPTIONS = frozenset({"prompt_cache_options"})
_OPENAI_HINTS = frozenset(
    {"verbosity", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"}
)

# A server's own fields: how it samples and fills in its template. Fields that let a caller raise the output limit
# (`n_predict`, `best_of`), run before others (`priority`), or reach hosts, slots and code are not among them; an
# operator may allow them with `forward_params`.
_MISTRAL_OWN = frozenset({
    "random_seed", "safe_prompt", "prompt_mode", "guardrails", "top_k", "min_tokens", "repetition_penalty",
    "prompt_logprobs", "top_prompt_logprobs",
})  # fmt: skip
_GROQ_OWN = frozenset({
    "reasoning_format", "include_reasoning", "citation_options", "compound_custom", "documents", "search_settings",
    "disable_tool_validation", "exclude_domains", "include_domains",
})  # fmt: skip

_VLLM_OWN = frozenset({
    "top_k", "min_p", "repetition_penalty", "length_penalty", "min_tokens", "stop_token_ids", "bad_words",
    "allowed_token_ids", "include_stop_str_in_output", "ignore_eos", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "add_generation_prompt", "continue_final_message",
    "add_special_tokens", "documents", "chat_template_kwargs", "structured_outputs",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_whitespace_pattern", "include_reasoning",
    "thinking_token_budget", "cache_salt",
})  # fmt: skip
_LLAMACPP_OWN = frozenset({
    "top_k", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range",
    "dynatemp_exponent", "mirostat", "mirostat_tau", "mirostat_eta", "repeat_penalty", "repeat_last_n",
    "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "samplers",
    "min_keep", "grammar", "json_schema", "ignore_eos", "cache_prompt", "chat_template_kwargs", "reasoning_format",
    "add_generation_prompt", "parse_tool_calls",
})  # fmt: skip
_TOGETHER_OWN = frozenset({
    "top_k", "min_p", "repetition_penalty", "safety_model", "reasoning", "chat_template_kwargs",
    "context_length_exceeded_behavior",
})  # fmt: skip
_OPENROUTER_OWN = frozenset({
    "top_k", "top_a", "min_p", "repetition_penalty", "reasoning", "include_reasoning", "provider", "transforms",
})  # fmt: skip

PRESETS: Mapping[str, Quirks] = {
    "mistral": Quirks(
        base_url="https://api.mistral.ai/v1",
        translates=False,
        cache_marks="none",
        keeps_signatures=False,
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
        prefill="prefix",
    ),
    "deepseek": Quirks(
        base_url="https://api.deepseek.com",
        translates=False,
        cache_marks="none",
        keeps_signatures=False,
        own=frozenset({"thinking"}),
        refused=_OPENAI_ONLY | _CACHE_OPTIONS | {"n", "logit_bias", "seed", "input_audio", "file"},
        instead={"reasoning_effort": _DEEPSEEK_LEVELS},
        max_tokens_field="max_tokens",
        developer_role=False,
        reasoning_back="with_tools",
        prefill="none",
        beta_prefill="prefix",
    ),
    "groq": Quirks(
        base_url="https://api.groq.com/openai/v1",
        cache_marks="none",
        keeps_signatures=False,
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
        translates=False,
        cache_marks="none",
        keeps_signatures=False,
        refused=_CACHE_OPTIONS | {"modalities", "audio", "moderation", "logit_bias", "input_audio"},
        instead=_THREE_LEVELS,
        session_header="x-grok-conv-id",
    ),
    "together": Quirks(
        base_url="https://api.together.xyz/v1",
        cache_marks="none",
        keeps_signatures=False,
        own=_TOGETHER_OWN,
        refused=_OPENAI_ONLY | _CACHE_OPTIONS | {"file"},
        instead=_THREE_LEVELS,
        max_tokens_field="max_tokens",
        developer_role=False,
    ),
    "openrouter": Quirks(
        base_url="https://openrouter.ai/api/v1",
        translates=False,
        keeps_signatures=False,  # it has them in `reasoning_details`
        cache_marks="anthropic",  # which it writes in the words of each model
        own=_OPENROUTER_OWN,
        refused=frozenset({"moderation"}),
        instead={"reasoning_effort": _OPENROUTER_LEVELS},
        always=field_value("usage", {"include": True}),
        session_header="x-session-id",
        keeps_cache_key=True,
    ),
    "vllm": Quirks(
        base_url="http://localhost:8000/v1",
        cache_marks="none",
        keeps_signatures=False,
        own=_VLLM_OWN,
        prefill="continue_final_message",
        refused=_OPENAI_ONLY | _CACHE_OPTIONS,
        instead=_THREE_LEVELS,
        developer_role=False,
    ),
    "llamacpp": Quirks(
        base_url="http://localhost:8080/v1",
        translates=False,
        cache_marks="none",
        keeps_signatures=False,
        own=_LLAMACPP_OWN,
        refused=_OPENAI_ONLY | _CACHE_OPTIONS,
        instead=_THREE_LEVELS,
        max_tokens_field="max_tokens",
        developer_role=False,
    ),
    "ollama": Quirks(
        base_url="http://localhost:11434/v1",
        translates=False,
        cache_marks="none",
        keeps_signatures=False,
        own=frozenset({"reasoning"}),
        # It ignores what it does not know, so what a caller counts on has to be refused here.
        refused=_OPENAI_ONLY | _CACHE_OPTIONS | {"n", "logit_bias", "input_audio", "file"},
        instead=_THREE_LEVELS,
        max_tokens_field="max_tokens",
        developer_role=False,
    ),
    # Vendors of embeddings and rerankings, which have no chat.
    "jina": Quirks(
        base_url="https://api.jina.ai/v1",
        cache_marks="none",
        keeps_signatures=False,
        refused=_OPENAI_ONLY | _CACHE_OPTIONS,
    ),
    "voyage": Quirks(
        base_url="https://api.voyageai.com/v1",
        cache_marks="none",
        keeps_signatures=False,
        refused=_OPENAI_ONLY | _CACHE_OPTIONS,
        own=frozenset({"input_type", "truncation"}),
        rename={"top_n": "top_k"},
    ),
}
