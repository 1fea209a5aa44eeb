"""Tokens that tools of an upstream may add to a chat request (docs/prices.md, "Tools that a vendor runs")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import structs

from gateway.billing.usage import Usage
from gateway.catalog import Model
from gateway.plugins.provider import Chat
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.vendor_tools import NO_USES, VendorUses

#: Tokens that an upstream reads in a round at most, where the model has no `context_window`.
DEFAULT_WINDOW = 200_000
#: A search model of chat completions searches before it answers.
ONE_SEARCH = VendorUses(1, 1)


def takes_native(adapted: Adapted[ChatRequest]) -> bool:
    """Whether the candidate gets the request in the dialect in which it was sent."""
    native, candidate = adapted.request.native, adapted.candidate
    return (
        native is not None
        and cast("Chat", candidate.provider).accepted_fields(native.dialect, candidate.target) is not None
    )


def vendor_uses(request: ChatRequest, model: Model, adapted: Sequence[Adapted[ChatRequest]]) -> VendorUses:
    """The most uses of tools that an upstream runs, over the candidates."""
    if request.native is None:
        return ONE_SEARCH if request.web_search_options is not None else NO_USES
    sent = [
        one.request.native.vendor_uses(model.vendor_tool_uses)
        for one in adapted
        if one.request.native is not None and takes_native(one)
    ]
    return max(sent, key=lambda found: (found.uses, found.searches), default=NO_USES)


def with_vendor_input(worst: Usage, uses: VendorUses, model: Model) -> tuple[Usage, int]:
    """The worst usage with these uses, and the tokens that they add to its input."""
    if not uses.uses:
        return worst, 0
    added = uses.uses * (model.context_window or DEFAULT_WINDOW)
    return structs.replace(worst, in_text=worst.in_text + added, web_searches=uses.searches), added
