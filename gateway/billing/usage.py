"""The usage of a call: the billing record, the lenient reading of an upstream's usage, and estimates.

`Usage` counts each token in exactly one bucket (docs/prices.md, "What is charged"). `completion_usage` reads the usage
object of an upstream; `Usage.of_chat` sorts it into buckets; `text_units` and `tokens_of` estimate text without a
count. Sharp edge: estimates are for holds and missing usage; a bill uses the upstream's counts if they are possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.amounts import MAX_AMOUNT, NANO
from gateway.schemas.chat_response import (
    CacheWriteDetails,
    CompletionTokensDetails,
    CompletionUsage,
    PromptTokensDetails,
    take,
)

if TYPE_CHECKING:  # commands load this module, and no requests
    from gateway.schemas.images import ImageUsage
    from gateway.schemas.speech import SpeechUsage

M = TypeVar("M", "ImageUsage", "SpeechUsage")

MAX_TOKENS = 1_000_000_000  # a larger count is impossible for one call
MAX_SECONDS = 1_000_000  # of audio: eleven days
MAX_SEARCHES = 1000  # in one call; the longest research takes about a hundred

# Estimates in quarter tokens: ASCII 1, other alphabets 2, CJK 4, emoji and the rest 8 (docs/prices.md, "Estimates").
# UTF-8 sorts characters into just these classes by their lead byte, and bytes.translate counts lead bytes at memory
# speed.
_NOT_TWO_BYTE = bytes(b for b in range(256) if not 0xC0 <= b <= 0xDF)
_NOT_THREE_BYTE = bytes(b for b in range(256) if not 0xE0 <= b <= 0xEF)
_NOT_FOUR_BYTE = bytes(b for b in range(256) if not 0xF0 <= b <= 0xF7)


class ImageCount(Struct, frozen=True):
    """The number of generated images, all of one size and quality."""

    count: int
    size: str = ""
    quality: str = ""


class Usage(Struct, frozen=True, omit_defaults=True):
    """The usage of one call; every token is in exactly one bucket. `estimated`: no upstream sent the counts."""

    requests: int = 1
    in_text: int = 0  # uncached text tokens
    in_cached: int = 0
    in_cache_write_short: int = 0
    in_cache_write_long: int = 0
    in_audio: int = 0
    in_audio_cached: int = 0
    in_image: int = 0
    out_text: int = 0
    out_reasoning: int = 0
    out_audio: int = 0
    out_image: int = 0
    images: ImageCount | None = None
    characters: int = 0
    audio_seconds_in: float = 0.0
    audio_seconds_out: float = 0.0
    search_units: int = 0
    web_searches: int = 0
    estimated: bool = False
    provider_cost: int | None = None  # nano USD, as reported by the upstream; never the charge

    @property
    def tokens_in(self) -> int:
        """All prompt tokens."""
        writes = self.in_cache_write_short + self.in_cache_write_long
        return self.in_text + self.in_cached + writes + self.in_audio + self.in_audio_cached + self.in_image

    @property
    def tokens_out(self) -> int:
        """All completion tokens."""
        return self.out_text + self.out_reasoning + self.out_audio + self.out_image

    @property
    def is_plain(self) -> bool:
        """Whether it contains only requests and plain text."""
        return not (
            self.in_cached
            or self.in_cache_write_short
            or self.in_cache_write_long
            or self.in_audio
            or self.in_audio_cached
            or self.in_image
            or self.out_reasoning
            or self.out_audio
            or self.out_image
            or self.images is not None
            or self.characters
            or self.audio_seconds_in
            or self.audio_seconds_out
            or self.search_units
            or self.web_searches
        )

    @classmethod
    def of_chat(cls, usage: CompletionUsage, *, estimated: bool = False) -> Usage:
        """The buckets of a chat usage object; its details are parts of its totals."""
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        if usage.is_public and prompt == _TEXT_IN and completion == _TEXT_OUT:  # most calls: 0.5 µs, others 3 µs
            text, out = max(usage.prompt_tokens, 0), max(usage.completion_tokens, 0)
            return cls(in_text=text, out_text=out, estimated=estimated)
        cached, text = take(prompt.cached_tokens, max(usage.prompt_tokens, 0))
        details = prompt.cache_write_tokens_details
        write, text = take(prompt.cache_write_tokens, text)
        long, short = take(details.ttl_12h_tokens if details is not UNSET else 0, write)
        # Cached audio is a part of both. Where its count is not known, cached tokens are text as far as there is text.
        cached_audio = min(
            round(_amount(usage.cached_audio_tokens, MAX_TOKENS) or 0), cached, max(prompt.audio_tokens, 0)
        )
        audio, text = take(prompt.audio_tokens - cached_audio, text)
        image, text = take(prompt.image_tokens, text)
        reasoning, out = take(completion.reasoning_tokens, max(usage.completion_tokens, 0))
        audio_out, out = take(completion.audio_tokens, out)
        image_out, out = take(completion.image_tokens, out)
        cost = _amount(usage.provider_cost, MAX_AMOUNT)
        return cls(
            in_text=text,
            in_cached=cached - cached_audio,
            in_cache_write_short=short,
            in_cache_write_long=long,
            in_audio=audio,
            in_audio_cached=cached_audio,
            in_image=image,
            out_text=out,
            out_reasoning=reasoning,
            out_audio=audio_out,
            out_image=image_out,
            audio_seconds_in=_amount(usage.audio_seconds, MAX_SECONDS) or 0.0,
            search_units=_searches(usage.search_units),
            web_searches=_searches(usage.web_searches),
            estimated=estimated,
            provider_cost=None if cost is None else round(cost),
        )

    @classmethod
    def of_images(cls, usage: ImageUsage, images: ImageCount) -> Usage:
        """The buckets of an image model's usage object; output without details is image output."""
        image, text = take(usage.input_tokens_details.image_tokens, usage.input_tokens)
        details = usage.output_tokens_details
        text_out, image_out = take(details.text_tokens if details is not UNSET else 0, usage.output_tokens)
        return cls(in_text=text, in_image=image, out_text=text_out, out_image=image_out, images=images)


_TEXT_IN = PromptTokensDetails()  # default details: all tokens are plain text
_TEXT_OUT = CompletionTokensDetails()


def _amount(value: object, most: int) -> float | None:
    """`value` if it is a number from 0 to `most`, else None; an upstream may send any type."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None


def _searches(value: object) -> int:
    """A number of searches; 0 for anything else."""
    count = _amount(value, MAX_SEARCHES)
    return int(count) if count is not None and count == int(count) else 0


def completion_usage(raw: bytes | msgspec.Raw | dict[str, Any]) -> CompletionUsage | None:
    """Read an upstream's usage object; None if it is not an object or has counts that are impossible or no numbers.

    For None the caller estimates. So a faulty upstream can neither credit an account nor empty it.
    """
    if (usage := _plain_usage(raw)) is not None:
        return usage
    try:
        document = raw if isinstance(raw, dict) else msgspec.json.decode(raw)
        return _read_usage(document) if isinstance(document, dict) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


Count = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]


class _PlainPrompt(Struct, forbid_unknown_fields=True):
    cached_tokens: Count = 0
    audio_tokens: Count = 0


class _PlainCompletion(Struct, forbid_unknown_fields=True):
    reasoning_tokens: Count = 0
    audio_tokens: Count = 0
    accepted_prediction_tokens: Count = 0
    rejected_prediction_tokens: Count = 0


class _Plain(Struct, forbid_unknown_fields=True):
    """The usage object that most OpenAI-compatible servers send."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count = 0
    prompt_tokens_details: _PlainPrompt | None = None
    completion_tokens_details: _PlainCompletion | None = None


_plain_decoder = msgspec.json.Decoder(_Plain)
_NO_PROMPT_DETAILS = _PlainPrompt()
_NO_COMPLETION_DETAILS = _PlainCompletion()


def _plain_usage(raw: bytes | msgspec.Raw | dict[str, Any]) -> CompletionUsage | None:
    """The usage in a document with the usual fields only; None for other documents."""
    try:
        plain = msgspec.convert(raw, _Plain) if isinstance(raw, dict) else _plain_decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    prompt, completion = plain.prompt_tokens, plain.completion_tokens
    inside, outside = plain.prompt_tokens_details, plain.completion_tokens_details
    inside, outside = inside or _NO_PROMPT_DETAILS, outside or _NO_COMPLETION_DETAILS
    if (
        not (prompt or completion)
        or inside.cached_tokens + inside.audio_tokens > prompt
        or outside.reasoning_tokens + outside.audio_tokens > completion
    ):
        return None
    return CompletionUsage(
        prompt,
        completion,
        prompt + completion,
        PromptTokensDetails(inside.cached_tokens, inside.audio_tokens),
        CompletionTokensDetails(
            outside.reasoning_tokens,
            outside.audio_tokens,
            outside.accepted_prediction_tokens,
            outside.rejected_prediction_tokens,
        ),
    )


def _read_usage(document: dict[str, Any]) -> CompletionUsage | None:
    prompt, completion = _totals(document)
    if not prompt and not completion:
        return None
    details_in = _details(document, "prompt_tokens_details")
    details_out = _details(document, "completion_tokens_details")
    written = details_in.get("cache_creation_tokens") or document.get("cache_creation_input_tokens")  # LiteLLM
    details_in = {"cache_write_tokens": written or None, **details_in}
    reasoning = _count(details_out, "reasoning_tokens")
    if not reasoning:
        reasoning = _count(document, "reasoning_tokens")
        if reasoning > completion:  # Perplexity counts it beside the completion
            completion += reasoning
    usage = CompletionUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=_count(details_in, "cached_tokens")
            or _count(document, "prompt_cache_hit_tokens")  # DeepSeek
            or _count(document, "cached_tokens")  # Moonshot, Together
            or _count(document, "cache_read_input_tokens"),  # Anthropic's name, as LiteLLM passes it on
            audio_tokens=_count(details_in, "audio_tokens"),
            cache_write_tokens_details=_cache_writes(details_in),
        ),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=reasoning,
            audio_tokens=_count(details_out, "audio_tokens"),
            accepted_prediction_tokens=_count(details_out, "accepted_prediction_tokens"),
            rejected_prediction_tokens=_count(details_out, "rejected_prediction_tokens"),
        ),
    )
    _read_optional(details_in, usage.prompt_tokens_details, ("cache_write_tokens", "image_tokens", "text_tokens"))
    _read_optional(details_out, usage.completion_tokens_details, ("image_tokens", "text_tokens"))
    _read_record(document, usage)
    return usage.bounded()


def _totals(document: dict[str, Any]) -> tuple[int, int]:
    """Prompt and completion by OpenAI's names, or by those of Anthropic, whose input leaves out what the cache held."""
    if document.get("prompt_tokens") is not None or document.get("completion_tokens") is not None:
        return _count(document, "prompt_tokens"), _count(document, "completion_tokens")
    cached = _count(document, "cache_read_input_tokens") + _count(document, "cache_creation_input_tokens")
    return _count(document, "input_tokens") + cached, _count(document, "output_tokens")


def _read_optional(
    document: dict[str, Any], details: PromptTokensDetails | CompletionTokensDetails, names: tuple[str, ...]
) -> None:
    """Set the details that are known."""
    for name in names:
        if document.get(name) is not None:
            setattr(details, name, _count(document, name))


def _read_record(document: dict[str, Any], usage: CompletionUsage) -> None:
    """Set what is for the call's record; nonsense there leaves the token counts valid."""
    if (cost := _amount(document.get("cost"), MAX_AMOUNT // NANO)) is not None:  # OpenRouter
        usage.provider_cost = round(cost * NANO)
    if (audio := _amount(document.get("prompt_audio_seconds"), MAX_SECONDS)) is not None:  # Mistral
        usage.audio_seconds = audio
    if cached_audio := _amount(document.get("cached_audio_tokens"), MAX_TOKENS):
        usage.cached_audio_tokens = round(cached_audio)
    if units := _searches(document.get("search_units")):
        usage.search_units = units
    # Every vendor has its own name for the searches of a call, and sends one of them.
    tools, calls = _details(document, "server_tool_use"), _details(document, "server_side_tool_usage_details")
    searches = max(
        _searches(document.get("web_searches")),
        _searches(tools.get("web_search_requests")),  # OpenRouter, and those who follow Anthropic
        _searches(_details(document, "prompt_tokens_details").get("web_search_requests")),  # LiteLLM
        _searches(document.get("num_search_queries")),  # Perplexity
        _searches(document.get("num_sources_used")),  # xAI, by source
        _searches(calls.get("web_search_calls")) + _searches(calls.get("x_search_calls")),  # xAI, by call
    )
    if searches:
        usage.web_searches = searches


def _cache_writes(details: dict[str, Any]) -> CacheWriteDetails | UnsetType:
    written = _details(details, "cache_write_tokens_details")
    if not written:
        return UNSET
    return CacheWriteDetails(_count(written, "ttl_30m_tokens"), _count(written, "ttl_12h_tokens"))


def _details(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _count(document: dict[str, Any], name: str) -> int:
    """A token count; floats are rounded, null is zero, anything else is a ValueError."""
    value = document.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_TOKENS:
        raise ValueError(name)
    return round(value)


def is_possible(usage: object) -> bool:
    """Whether this is a usage with possible counts; a plugin may return any object."""
    if not isinstance(usage, CompletionUsage):
        return False
    parts, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    lives = parts.cache_write_tokens_details
    try:
        # The bitwise or of all counts is negative if one is negative, and too long if one is too long. 0.3 µs.
        counts = (
            usage.prompt_tokens
            | usage.completion_tokens
            | usage.total_tokens
            | parts.cached_tokens
            | parts.audio_tokens
            | (0 if parts.cache_write_tokens is UNSET else parts.cache_write_tokens)
            | (0 if parts.image_tokens is UNSET else parts.image_tokens)
            | (0 if parts.text_tokens is UNSET else parts.text_tokens)
            | (0 if lives is UNSET else lives.ttl_12h_tokens | lives.ttl_30m_tokens)
            | completion.reasoning_tokens
            | completion.audio_tokens
            | completion.accepted_prediction_tokens
            | completion.rejected_prediction_tokens
            | (0 if completion.image_tokens is UNSET else completion.image_tokens)
            | (0 if completion.text_tokens is UNSET else completion.text_tokens)
        )
    except TypeError:
        return False
    return type(counts) is int and 0 <= counts < 1 << (2 * MAX_TOKENS).bit_length()


def possible_usage(usage: object, kind: type[M]) -> M | None:
    """The usage of an image or a speech model if its counts are possible and not all zero, else None."""
    if not isinstance(usage, kind):
        return None
    try:
        usage = msgspec.convert(msgspec.to_builtins(usage), kind)
    except (msgspec.ValidationError, TypeError):
        return None
    return usage if usage.input_tokens or usage.output_tokens else None


def text_units(text: str, surrogates: str = "surrogatepass") -> int:
    """Estimated quarter tokens of `text`; constant time for ASCII. With "strict", a lone surrogate is an error."""
    if text.isascii():
        return len(text)
    raw = text.encode("utf-8", surrogates)
    two = len(raw.translate(None, _NOT_TWO_BYTE))
    three = len(raw.translate(None, _NOT_THREE_BYTE))
    four = len(raw.translate(None, _NOT_FOUR_BYTE))
    ascii_count = len(text) - two - three - four
    return ascii_count + 2 * two + 4 * three + 8 * four


def tokens_of(units: int, *, factor: float = 1.0) -> int:
    """`units` quarter tokens as tokens, times a model family's factor, rounded up."""
    return -int(-units * factor // 4)
