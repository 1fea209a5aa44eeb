"""What a chat answer used: the upstream's count within its bounds, or our own count of what was delivered.

`ChatCounting` has the values of one call that a count depends on, and no reference to the call: the call refers to the
encoder of its stream, and the encoder refers to this object.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import cast

from msgspec import UNSET, Struct, structs

from gateway.api.endpoints.chat_output_limit import DEFAULT_LIMIT
from gateway.billing.delivered import QUARTERS_PER_TOKEN, Delivered
from gateway.billing.usage import MAX_TOKENS, Usage, tokens_of
from gateway.billing.usage_bounds import (
    BELOW_DELIVERED,
    TOKENS_ABOVE_REQUEST,
    Bounds,
    Counted,
    bound_usage,
    with_output_of,
)
from gateway.inference.call import Call
from gateway.plugins.provider import Chat
from gateway.schemas.chat_response import CompletionTokensDetails, CompletionUsage, PromptTokensDetails

#: The lowest possible bytes per second of audio; a count of more seconds than that is impossible.
MIN_AUDIO_BYTE_RATE = 100


class ChatCounting(Struct, frozen=True):
    """Counts the answer of one call."""

    prompt: Usage  # the estimate
    media: int  # the tokens of it that are images, audio and documents
    factor: float  # tokens of the model per estimated token
    forwarded: int  # bytes of the request, and tokens that tools of the upstream may add
    limit: int | None  # of output tokens that was sent, for all choices
    usual_limit: int  # where none was sent

    @classmethod
    def of(cls, call: Call) -> ChatCounting:
        """The counting of the call's answer."""
        quote, model = call.quote, call.model
        return cls(
            quote.prompt,
            quote.prompt.in_image + quote.prompt.in_audio + quote.documents,
            model.token_factor,
            call.body_size + quote.vendor_input,
            quote.worst_case.tokens_out if quote.bounded else _own_limit(call),
            (model.max_output_tokens or DEFAULT_LIMIT) * quote.choices,
        )

    def count(self, reported: CompletionUsage | None, delivered: Delivered, whole: bool) -> Counted:
        """The usage to charge. `reported` is the upstream's count, of the `whole` answer or reported before its end."""
        if whole and reported is not None and self._is_plain(reported, delivered):
            return Counted(Usage.of_chat(reported))
        ours = self.delivered(delivered)
        if reported is None:
            return Counted(ours)
        if not (reported.prompt_tokens or reported.completion_tokens):
            return Counted(ours, "no tokens")
        counted = self._with_seconds(_usage_of(reported, delivered))
        usage, fault = counted.usage, counted.fault
        if not whole:
            usage = with_output_of(usage, ours)
        limit = self.limit if whole else None
        if whole and limit is None:
            # The limit of an upstream that got none is unknown, but not that it delivered more than the usual one.
            limit = max(self.usual_limit, ours.tokens_out)
        bounded = bound_usage(usage, Bounds(self.forwarded, self.media, limit), ours)
        return Counted(bounded.usage, ", ".join(filter(None, (fault, bounded.fault)))) if fault else bounded

    def delivered(self, delivered: Delivered) -> Usage:
        """The usage without an upstream's count: the estimate of the prompt, and what was delivered."""
        text = delivered.text_quarter_tokens
        if not (delivered.audio_ms or delivered.images):
            return structs.replace(self.prompt, out_text=tokens_of(text, factor=self.factor))
        return structs.replace(
            self.prompt,
            out_text=tokens_of(text - delivered.media_quarter_tokens, factor=self.factor),
            out_audio=delivered.audio_tokens,
            out_image=delivered.image_tokens,
        )

    def public(self, reported: CompletionUsage | None, delivered: Delivered, whole: bool) -> CompletionUsage:
        """`count` as the client sees it: the upstream's own object where it is charged as it is."""
        counted = self.count(reported, delivered, whole)
        return public(counted.usage) if reported is None or counted.fault or not whole else reported

    def _is_plain(self, reported: CompletionUsage, delivered: Delivered) -> bool:
        """Whether the count is of text and within every bound without a look at its parts; most are."""
        limit = self.usual_limit if self.limit is None else self.limit
        return reported.audio_seconds is UNSET and _is_within(
            reported, delivered, self.prompt, forwarded=self.forwarded, limit=limit, factor=self.factor
        )

    def _with_seconds(self, usage: Usage) -> Counted:
        """The usage with an estimate of audio seconds that the upstream does not report, or that are impossible."""
        seconds = self.prompt.audio_seconds_in
        impossible = usage.audio_seconds_in * MIN_AUDIO_BYTE_RATE > self.forwarded
        if not impossible and (usage.audio_seconds_in or not seconds):
            return Counted(usage)
        fault = "impossible seconds" if impossible else ""
        return Counted(structs.replace(usage, audio_seconds_in=seconds, estimated=True), fault)


def _text_usage(usage: CompletionUsage) -> Usage | None:
    """The usage of a possible count of plain text, as most are; None for any other count."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if (
        type(prompt) is int
        and type(completion) is int
        and 0 <= prompt <= MAX_TOKENS
        and 0 <= completion <= MAX_TOKENS
        and usage.is_plain()
    ):
        return Usage(in_text=prompt, out_text=completion)
    return None


def plain_count(call: Call, reported: CompletionUsage, delivered: Delivered) -> Usage | None:
    """The usage of a whole answer whose count is of plain text and within every bound; None for all others.

    Most counts are; `ChatCounting` takes 1 µs more for them.
    """
    usage, quote = _text_usage(reported), call.quote
    if usage is None or not quote.bounded:
        return None
    limit, factor = quote.worst_case.tokens_out, call.model.token_factor
    forwarded = call.body_size + quote.vendor_input
    within = _is_within(reported, delivered, quote.prompt, forwarded=forwarded, limit=limit, factor=factor)
    return usage if within else None


def _is_within(
    reported: CompletionUsage, delivered: Delivered, prompt: Usage, *, forwarded: int, limit: int, factor: float
) -> bool:
    """Whether a count of text is within every bound (`Bounds`) without a look at its parts."""
    tokens = reported.completion_tokens
    return (
        not (delivered.images or prompt.audio_seconds_in)
        and 0 < reported.prompt_tokens <= forwarded + TOKENS_ABOVE_REQUEST
        and tokens <= limit
        and delivered.text_quarter_tokens * factor <= tokens * BELOW_DELIVERED * QUARTERS_PER_TOKEN
    )


def _usage_of(reported: CompletionUsage, delivered: Delivered) -> Usage:
    """The upstream's count. Without its number of image tokens, the tokens of delivered images are no text."""
    usage = Usage.of_chat(reported)
    if not delivered.images or usage.out_image:
        return usage
    images = min(usage.out_text, delivered.image_tokens)
    return structs.replace(usage, out_text=usage.out_text - images, out_image=images)


def counted_by_time(call: Call) -> Usage:
    """The usage of an answer that was read on without its caller, and whose usage did not come.

    The prompt, and what was delivered or what its target usually makes in the time that it had; at most what the hold
    pays for.
    """
    counting, encoder = ChatCounting.of(call), call.encoder
    reported, delivered = (None, Delivered()) if encoder is None else (encoder.usage, encoder.delivered)
    used = counting.count(reported, delivered, False).usage
    seconds = time.monotonic() - call.sending.started
    made = int(seconds * call.output_rate) - used.tokens_out
    if made <= 0:
        return used

    def with_more(tokens: int) -> Usage:
        return structs.replace(used, out_text=used.out_text + tokens, estimated=True)

    # As plain text, and not at the worst price: this is a charge, and no hold.
    paid = bisect_right(range(1, made + 1), call.hold.amount, key=lambda tokens: call.cost(with_more(tokens)))
    return with_more(min(paid, made))


def _own_limit(call: Call) -> int | None:
    """The output limit that the provider which served sends by itself, for all choices."""
    if not call.attempts:
        return None
    served = call.attempts[-1]
    limit = cast("Chat", served.provider).output_limit(call.request, served.target)
    return None if limit is None else limit * call.quote.choices


def public(usage: Usage) -> CompletionUsage:
    """A usage in the terms of chat clients."""
    written = usage.in_cache_write_short + usage.in_cache_write_long
    return CompletionUsage(
        usage.tokens_in,
        usage.tokens_out,
        usage.tokens_in + usage.tokens_out,
        PromptTokensDetails(
            usage.in_cached + usage.in_audio_cached,
            usage.in_audio + usage.in_audio_cached,
            cache_write_tokens=written or UNSET,
        ),
        CompletionTokensDetails(usage.out_reasoning, usage.out_audio),
    )
