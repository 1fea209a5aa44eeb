"""Whether another target may finish the stream of a chat call that its upstream cuts."""

from __future__ import annotations

from gateway.api.endpoints.vendor_input import takes_native
from gateway.billing.call_record import Joined
from gateway.inference.call import Call
from gateway.inference.services import Services
from gateway.routing.continuation import Attempt, Continuation
from gateway.routing.dispatcher import Opened
from gateway.schemas.chat_response import ChatChunk


def continuation_of(call: Call, opened: Opened[ChatChunk], services: Services, attempt: Attempt) -> Continuation | None:
    """The way to the rest of the stream; None if it stays cut.

    It stays cut if a candidate may get the request in the dialect in which it was sent, which no continuation has.
    """
    if call.request.native is not None and any(map(takes_native, call.adapted)):
        return None

    def joined(form: str, offset: int) -> None:
        call.encoder.continue_elsewhere()
        call.joined = Joined(form, offset)

    return Continuation(
        opened,
        call.adapted,
        mode=call.model.continue_cut,
        dispatcher=services.dispatcher,
        attempt=attempt,
        tried=call.attempts,
        on_joined=joined,
        reported=lambda: call.encoder.usage,
    )
