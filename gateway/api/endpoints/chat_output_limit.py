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

#: Tokens of output below which a call is refused and not clamped, because the answer would be too short to use: of a
#: caller's own limit, and of a limit that the caller does not know.
MIN_OUTPUT = 16
LEAST_OUTPUT = 4096
#: The output limit where neither the caller nor the model has one.
DEFAULT_LIMIT = 32_768
#: An output limit, in an upstream's error.
_LIMIT_WORDS = re.compile(
    r"max[ _-]?(completion|output|new)?[ _-]?tokens|(completion|output) tokens|(in|for) the (completion|output)",
    re.IGNORECASE,
)
#: An error about the name of a field, not about its value.
_UNKNOWN = re.compile(
    r"(unknown|unrecogni[sz]ed|unsupported)(?! value)|not (supported|permitted|recogni[sz]ed)|instead", re.IGNORECASE
)
_OTHER_FIELD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_NUMBERS = re.compile(r"\b\d{2,9}\b")
#: A context window, in an upstream's error: after a comparison, or after its name.
_CONTEXT = re.compile(r"context|inputs?` tokens|input length", re.IGNORECASE)
_WINDOWS = (re.compile(r"[<>]=?\s*(\d{2,9})\b"), re.compile(r"context\D{0,60}?\b(\d{2,9})\b", re.IGNORECASE))


def limit_output(adapted: Adapted[ChatRequest], tokens: int) -> Adapted[ChatRequest]:
    """The request with an output limit of `tokens`, or less if it or its target has a lower one."""
    request, candidate = adapted.request, adapted.candidate
    provider = cast("Chat", candidate.provider)
    own = provider.output_limit(request, candidate.target)  # a dialect's default, or the caller's limit
    tokens = tokens if own is None else min(own, tokens)
    if request.max_output is not None and adapted.if_refused is None:  # the caller's own limit
        return Adapted(candidate, with_limit(request, tokens), adapted.dropped)
    names = _limit_fields(request) or (candidate.limits.field(provider.limit_field),)
    accepted = candidate.limits.limit(tokens)
    if accepted is not None:
        tokens = accepted
    elif own is None:
        return adapted
    refused = partial(_after_refusal, adapted, names, tokens)
    return Adapted(candidate, _limited(request, names, tokens), adapted.dropped, refused)


def _after_refusal(
    adapted: Adapted[ChatRequest], names: Sequence[str], tokens: int, error: GatewayError
) -> Adapted[ChatRequest] | None:
    """The request with another limit, or with none; None if the error is about other things."""
    text = f"{error.param} {error.message}"
    if not _LIMIT_WORDS.search(text):
        return None
    candidate, request = adapted.candidate, adapted.request.without(names)
    field = _other_field(text, names)
    names = names if field is None else (field,)
    lower: int | None
    window = keep = None
    if isinstance(error, ContextLengthExceeded) or _CONTEXT.search(text):
        window = _window(text)
        lower = None if window is None else _room(text, window, tokens)
        if lower is None:
            own = cast("Chat", candidate.provider).output_limit(request, candidate.target)
            if own is None:  # the upstream itself ends the answer where the window does; the hold covers that
                return Adapted(candidate, request, adapted.dropped)
            lower = max(1, tokens // 2)  # the dialect would send more than is held
    else:
        lower, keep = _lower(text, tokens)
    # With a wrong field, the limit itself may be right: it is not remembered.
    learn = partial(candidate.limits.learn, tokens=keep if field is None else None, window=window, field=field)
    return Adapted(candidate, _limited(request, names, lower), adapted.dropped, if_accepted=learn)


def _other_field(text: str, names: Sequence[str]) -> str | None:
    """The other spelling of the field, if the error says that the target does not know the one that was sent."""
    if len(names) == 1 and names[0] in text and _UNKNOWN.search(text):
        return _OTHER_FIELD.get(names[0])
    return None


def _lower(text: str, tokens: int) -> tuple[int, int | None]:
    """The limit that an error names, at most half of the refused one; and the limit to remember, if any."""
    named = [number for number in map(int, _NUMBERS.findall(text)) if MIN_OUTPUT <= number < tokens]
    half = max(1, tokens // 2)
    if named:
        return min(half, max(named)), max(named)
    return half, half if half >= LEAST_OUTPUT else None  # half of a clamped limit says nothing about the target


def _window(text: str) -> int | None:
    """The context window that an error names, if any."""
    found = next(filter(None, (words.search(text) for words in _WINDOWS)), None)
    return None if found is None else int(found[1])


def _room(text: str, window: int, tokens: int) -> int | None:
    """What a context window leaves beside the prompt, if an error names the prompt too; else None.

    An error may name the parts of the prompt, their sum with the limit, or both.
    """
    named = {int(number) for number in _NUMBERS.findall(text)} - {window, tokens}
    sums = [number for number in named if number > max(window, tokens)]
    room = window - (max(sums) - tokens if sums else sum(named))
    return room if named and 0 < room < tokens else None


def _limit_fields(request: ChatRequest) -> tuple[str, ...]:
    """The fields in which the request has an output limit."""
    if request.max_tokens is None:
        return () if request.max_completion_tokens is None else ("max_completion_tokens",)
    return ("max_tokens",) if request.max_completion_tokens is None else ("max_tokens", "max_completion_tokens")


def with_limit(request: ChatRequest, tokens: int) -> ChatRequest:
    """The request with another output limit, in the fields in which it has one."""
    return _limited(request, _limit_fields(request), tokens)


def _limited(request: ChatRequest, names: Sequence[str], tokens: int) -> ChatRequest:
    """The request with an output limit of `tokens` in these fields."""
    limited, value = copy(request), Raw(b"%d" % tokens)  # a copy takes a third of the time of `structs.replace`
    fields = limited.fields = request.fields.copy()
    for name in names:
        fields[name] = value
        setattr(limited, name, tokens)
    return limited
