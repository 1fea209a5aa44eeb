"""Whether another target may finish the stream of a chat call that its upstream cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from gateway.api.endpoints.chat_output_limit import limit_output
from gateway.api.endpoints.vendor_input import takes_native, vendor_uses
from gateway.billing.call_record import Joined
from gateway.errors import BadRequest
from gateway.inference.call import Call
from gateway.inference.services import Services
from gateway.plugins.provider import Chat
from gateway.routing.continuation import Attempt, Continuation
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted, adapt
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk
from gateway.schemas.vendor_tools import NO_USES


def continuation_of(call: Call, opened: Opened[ChatChunk], services: Services, attempt: Attempt) -> Continuation:
    """The way to the rest of the stream."""

    def joined(form: str, text: str) -> None:
        call.encoder.continue_elsewhere(text)
        call.joined = Joined(form, len(text))

    return Continuation(
        opened,
        lambda: _options(call, services),
        model=call.model,
        mode=call.model.continue_cut,
        dispatcher=services.dispatcher,
        attempt=attempt,
        tried=call.attempts,
        on_joined=joined,
        reported=lambda: call.encoder.usage,
    )


def _options(call: Call, services: Services) -> Sequence[Adapted[ChatRequest]]:
    """The request to each target in the dialect of chat, in which an answer can be continued.

    None if it went up in the dialect in which it was sent, and asked for what that of chat has not, or if what came
    cannot be followed by plain chunks.
    """
    options: Sequence[Adapted[ChatRequest]] = call.adapted
    native = call.request.native
    if native is None or not any(map(takes_native, options)):
        return options
    if native.only_native or not call.encoder.continues_native:
        return ()
    if vendor_uses(call.request, call.model, options) != NO_USES:
        return ()
    return list(_as_chat(call, options, services))


def _as_chat(call: Call, options: Sequence[Adapted[ChatRequest]], services: Services) -> Iterator[Adapted[ChatRequest]]:
    request = structs.replace(call.request, native=None)
    unknown_params, limit = services.settings.server.unknown_params, call.quote.output_limit
    for option in options:
        try:
            [one] = adapt(request, [option.candidate], Chat, unknown_params=unknown_params)
        except BadRequest:
            continue
        yield one if limit is None else limit_output(one, limit)
