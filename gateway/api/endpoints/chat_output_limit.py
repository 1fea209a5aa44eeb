"""Output limits in chat requests: the field, the number, and what to send once if the upstream refuses a limit.

A limit that the caller has set is sent as it is or lower. A limit that the gateway added is sent in another way if the
upstream refuses it: such a call has worked before, without a limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import cast

from msgspec import Raw

from gateway.errors import ContextLengthExceeded, GatewayError
from gateway.plugins.provider import Chat
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.chat_request import ChatRequest

#: Tokens of output below which a caller's own limit is refused and not clamped: the answer would be too short to use.
MIN_OUTPUT = 16
#: An output limit, in an upstream's error.
_LIMIT_WORDS = re.compile(
    r"max[ _-]?(completion|output|new)?[ _-]?tokens|(completion|output) tokens|(in|for) the (completion|output)",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"\b\d{2,9}\b")
#: A context window, in an upstream's error: after a comparison, or after its name.
_CONTEXT = re.compile(r"context|inputs?` tokens|input length", re.IGNORECASE)
_WINDOWS = (re.compile(r"[<>]=?\s*(\d{2,9})\b"), re.compile(r"context\D{0,60}?\b(\d{2,9})\b", re.IGNORECASE))


def limit_output(adapted: Adapted[ChatRequest], tokens: int) -> Adapted[ChatRequest]:
    """The request with an output limit of `tokens`, or less if it already has a lower one."""
    request, candidate = adapted.request, adapted.candidate
    provider = cast("Chat", candidate.provider)
    names = _limit_fields(request) or (provider.limit_field,)
    own = provider.output_limit(request, candidate.target)  # a dialect's default, or the caller's limit
    tokens = tokens if own is None else min(own, tokens)
    added = request.max_output is None or adapted.if_refused is not None
    return Adapted(
        candidate,
        _limited(request, names, tokens),
        adapted.dropped,
        partial(_after_refusal, adapted, names, tokens) if added else None,
    )


def _after_refusal(
    adapted: Adapted[ChatRequest], names: Sequence[str], tokens: int, error: GatewayError
) -> Adapted[ChatRequest] | None:
    """The request with another limit, or with none; None if the error is about other things."""
    text = f"{error.param} {error.message}"
    if not _LIMIT_WORDS.search(text):
        return None
    if "max_completion_tokens" in text and list(names) == ["max_tokens"]:
        names = ("max_completion_tokens",)
    lower: int | None
    if isinstance(error, ContextLengthExceeded) or _CONTEXT.search(text):
        lower = _room(text, tokens)
        if lower is None:  # the upstream itself ends the answer where the window does; the hold covers that
            return Adapted(adapted.candidate, adapted.request.without(names), adapted.dropped)
    else:
        lower = _lower(text, tokens)
    return Adapted(adapted.candidate, _limited(adapted.request, names, lower), adapted.dropped)


def _lower(text: str, tokens: int) -> int:
    """The limit that an error names, at most half of the refused one."""
    named = [int(number) for number in _NUMBERS.findall(text)]
    most = max((number for number in named if MIN_OUTPUT <= number < tokens), default=tokens)
    return max(1, min(tokens // 2, most))


def _room(text: str, tokens: int) -> int | None:
    """What the context window leaves beside the prompt, if an error names both; else None.

    An error may name the parts of the prompt, their sum with the limit, or both.
    """
    found = next(filter(None, (words.search(text) for words in _WINDOWS)), None)
    if found is None:
        return None
    window = int(found[1])
    named = {int(number) for number in _NUMBERS.findall(text)} - {window, tokens}
    sums = [number for number in named if number > max(window, tokens)]
    room = window - (max(sums) - tokens if sums else sum(named))
    return room if named and 0 < room < tokens else None


def _limit_fields(request: ChatRequest) -> tuple[str, ...]:
    """The fields in which the request has an output limit."""
    if request.max_tokens is None:
        return () if request.max_completion_tokens is None else ("max_completion_tokens",)
    return ("max_tokens",) if request.max_completion_tokens is None else ("max_tokens", "max_completion_tokens")


def _limited(request: ChatRequest, names: Sequence[str], tokens: int) -> ChatRequest:
    """The request with an output limit of `tokens` in these fields."""
    limited, value = copy(request), Raw(b"%d" % tokens)  # a copy takes a third of the time of `structs.replace`
    limited.fields = {**request.fields, **dict.fromkeys(names, value)}
    for name in names:
        setattr(limited, name, tokens)
    return limited
