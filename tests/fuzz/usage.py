"""Usage objects of every dialect: whatever an upstream counts, the cost is a whole number within the bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway import CompletionUsage, ImageUsage, SpeechUsage, TranscriptUsage, completion_usage
from gateway.billing.price import Price, Tier
from gateway.billing.usage import MAX_TOKENS, ImageCount, Usage, is_possible, possible_usage
from gateway.billing.usage_bounds import Bounds, bound_usage
from gateway_providers.anthropic import answer as anthropic
from gateway_providers.bedrock import answer as bedrock
from gateway_providers.cohere import answer as cohere
from gateway_providers.gemini import usage as gemini
from gateway_providers.openai import chunks as openai
from gateway_providers.openai import images as openai_images
from gateway_providers.openai import speech as openai_speech
from gateway_providers.openai import transcription as openai_transcription
from tests.fuzz.choices import Choices

NUMBERS = (
    0, 1, 7, 100, -1, MAX_TOKENS, MAX_TOKENS + 1, 2**31, 2**53, 2**63, 2**64, 10**30, 0.5, 1e9, 1e300, -0.0, 1.5e3,
)  # fmt: skip
WORDS: tuple[Any, ...] = ("12", "", "NaN", None, True, False, [], {}, [1], {"a": 1}, "1" * 50)
#: Written into JSON as they are.
LITERALS = ("1e400", "-1e400", "1E2", "1" * 400, "-0", "0.1e-400", "9007199254740993")
RATE = 3_000_000_000  # nano-units per million tokens
TIERED = Price(input=RATE, output=RATE, tiers=(Tier(200_000, Price(input=2 * RATE, output=2 * RATE)),))
PRICES = (
    Price(),
    Price(input=RATE, output=RATE, reasoning=RATE, cached_input=RATE, minimum=5),
    Price(input=RATE, output=RATE, per_web_search=10**7, per_search_unit=10**6, per_second_in=10**5, per_request=7),
    TIERED,
)
MOST_COST = 10**13  # nano-units: 3,000 tokens in 100 tiers, searches and seconds included, stay far below it

OPENAI = (
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
    "cached_tokens", "audio_tokens", "reasoning_tokens", "cache_write_tokens", "image_tokens", "text_tokens", "cost",
    "cache_write_tokens_details", "ttl_12h_tokens", "ttl_30m_tokens", "prompt_cache_hit_tokens", "search_units",
    "server_tool_use", "web_search_requests", "num_search_queries", "num_sources_used", "prompt_audio_seconds",
    "cached_audio_tokens", "server_side_tool_usage_details", "web_search_calls", "accepted_prediction_tokens",
)  # fmt: skip
FIELDS = {
    "openai": OPENAI,
    "openai_images": (
        "input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "image_tokens", "text_tokens",
        "output_tokens_details",
    ),
    "openai_speech": ("input_tokens", "output_tokens", "total_tokens"),
    "openai_transcription": ("seconds", "input_tokens", "output_tokens", "input_token_details", "audio_tokens"),
    "anthropic": (
        "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation",
        "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens", "output_tokens_details", "thinking_tokens",
        "server_tool_use", "web_search_requests",
    ),
    "gemini": (
        "promptTokenCount", "candidatesTokenCount", "toolUsePromptTokenCount", "thoughtsTokenCount", "AUDIO", "IMAGE",
        "cachedContentTokenCount", "promptTokensDetails", "candidatesTokensDetails", "cacheTokensDetails",
    ),
    "bedrock": ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "outputTokens", "cacheDetails", "1h"),
    "cohere": ("tokens", "billed_units", "input_tokens", "output_tokens", "cached_tokens", "search_units"),
}  # fmt: skip


class Told(Struct, frozen=True):
    """A usage object, as JSON, and the request that it is for."""

    dialect: str
    document: bytes
    price: int
    forwarded: int
    limit: int | None
    delivered: int


class UsageTarget:
    """Every dialect's reader of usage, the bounds and the cost."""

    name = "usage"
    seconds = 0.5

    def make(self, choices: Choices) -> Told:
        dialect = choices.of(tuple(FIELDS))
        document = object_of(choices, FIELDS[dialect], depth=2)
        limit = choices.pick(None, 0, 1, 1000)
        return Told(
            dialect, document, choices.below(len(PRICES)), choices.pick(100, 0, 3000), limit, choices.pick(0, 10, 900)
        )

    def check(self, case: Told) -> None:
        usage = used(case.dialect, case.document)
        if usage is not None:
            check_usage(case, usage)

    def close(self) -> None:
        """Nothing is kept."""


def object_of(choices: Choices, names: tuple[str, ...], *, depth: int) -> bytes:
    """A JSON object with fields of the dialect, some of them repeated."""
    fields = choices.many(lambda: b'"%b":%b' % (choices.of(names).encode(), value_of(choices, names, depth)), 7)
    return b"{%b}" % b",".join(fields)


def value_of(choices: Choices, names: tuple[str, ...], depth: int) -> bytes:
    """A JSON value."""
    kind = choices.below(8)
    if kind < 3:
        return b"%d" % choices.below(3000)
    if kind == 3:
        return msgspec.json.encode(choices.of(NUMBERS)) if choices.one_in(2) else choices.of(LITERALS).encode()
    if kind == 4:
        return msgspec.json.encode(choices.of(WORDS))
    if depth == 0:
        return b"1"
    if kind == 5:
        modality, count = choices.pick("AUDIO", "IMAGE", "TEXT", "1h"), value_of(choices, names, 0)
        entry = b'{"modality":"%b","tokenCount":%b,"ttl":"%b","inputTokens":%b}'
        return b"[%b]" % (entry % (modality.encode(), count, modality.encode(), count))
    return object_of(choices, names, depth=depth - 1)


def used(dialect: str, document: bytes) -> Usage | None:
    """The usage that the dialect's provider and the endpoint read; None if the gateway estimates."""
    try:
        decoded = msgspec.json.decode(document)
    except msgspec.DecodeError:  # the answer with it is unreadable
        decoded = None
    if dialect == "openai":
        # A whole answer is read without decoding its usage first.
        raw = openai.read_usage(Raw(document))
        if decoded is None:
            return None if raw is None else Usage.of_chat(raw)
        told = openai.read_usage(decoded)
        assert told == raw
        assert completion_usage(document) == completion_usage(decoded)
        return None if told is None else of_chat(told)
    return None if decoded is None else READERS[dialect](decoded)


def of_chat(told: CompletionUsage | None) -> Usage | None:
    if told is None:
        return None
    assert is_possible(told), told
    assert told.total_tokens == told.prompt_tokens + told.completion_tokens
    usage = Usage.of_chat(told)
    assert usage.tokens_in == told.prompt_tokens
    assert usage.tokens_out == told.completion_tokens
    return usage


def of_images(told: ImageUsage | None) -> Usage | None:
    told = possible_usage(told, ImageUsage)
    return None if told is None else Usage.of_images(told, ImageCount(1))


def of_speech(told: SpeechUsage | None) -> Usage | None:
    told = possible_usage(told, SpeechUsage)
    return None if told is None else Usage(in_text=told.input_tokens, out_audio=told.output_tokens)


def of_transcript(told: TranscriptUsage | None) -> Usage | None:
    if told is None:
        return None
    assert told.seconds is None or isinstance(told.seconds, (int, float))
    return None


READERS: dict[str, Callable[[Any], Usage | None]] = {
    "openai_images": lambda told: of_images(openai_images.read_usage(told)),
    "openai_speech": lambda told: of_speech(openai_speech.read_usage(told)),
    "openai_transcription": lambda told: of_transcript(openai_transcription.read_usage(told)),
    "anthropic": lambda told: of_chat(anthropic.read_usage(told)),
    "gemini": lambda told: of_gemini(told),
    "bedrock": lambda told: of_chat(bedrock.read_usage(told)),
    "cohere": lambda told: of_chat(cohere.read_usage(told)),
}


def of_gemini(told: Any) -> Usage | None:
    of_images(gemini.image_usage(told))
    of_speech(gemini.speech_usage(told))
    of_transcript(gemini.transcript_usage(told))
    return of_chat(gemini.read_usage(told, searches=1))


def check_usage(case: Told, usage: Usage) -> None:
    """Every count is a whole number that is not negative, and the cost is bounded by the request."""
    counts = [getattr(usage, name) for name in Usage.__struct_fields__ if name.startswith(("in_", "out_"))]
    assert all(type(count) is int and count >= 0 for count in counts), usage
    bounds = Bounds(case.forwarded, limit=case.limit)
    bounded = bound_usage(usage, bounds, Usage(out_text=case.delivered)).usage
    assert 0 <= bounded.tokens_in <= bounds.most_in, bounded
    if bounds.most_out is not None:
        assert 0 <= bounded.tokens_out <= max(bounds.most_out, case.delivered), bounded
    cost = PRICES[case.price].cost(bounded)
    assert type(cost) is int
    assert cost >= 0
    if case.limit is not None:
        assert cost <= MOST_COST, cost
