"""`GET /v1/realtime`: conversations of speech and text over a WebSocket. A call is one response, with what led to it.

The quote of a call is that of the next response: the conversation so far, and the usual reserve of output. The rest is
in `gateway.api.realtime`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from gateway.billing.quote import Quote
from gateway.billing.token_estimate import with_safety
from gateway.billing.usage import Usage
from gateway.catalog import Model
from gateway.errors import GatewayError, InvalidValue, MissingParameter, UnsupportedParameter
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.services import Services
from gateway.plugins.provider import Realtime
from gateway.plugins.realtime_session import RealtimeSession
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.realtime.request import RealtimeRequest

MAX_NAME = 256  # characters of a model's name

_encode = msgspec.json.Encoder().encode


class RealtimeEndpoint(Endpoint[RealtimeRequest]):
    """Realtime sessions."""

    name = "realtime"
    capability = Realtime
    answers = RealtimeSession
    prompt_param = "session"

    def decode(self, body: Any, account: str, services: Services) -> RealtimeRequest:
        """The request for the model that the query names."""
        if not body:
            raise MissingParameter("The query must name a model: /v1/realtime?model=NAME", param="model")
        if len(body) > MAX_NAME:
            raise InvalidValue("The name of the model is too long", param="model")
        return RealtimeRequest(model=body)

    def wants_stream(self, request: RealtimeRequest) -> bool:
        return True

    def quote(
        self, request: RealtimeRequest, model: Model, body_size: int, adapted: Sequence[Adapted[RealtimeRequest]] = ()
    ) -> Quote:
        if model.hooks:  # they check requests and answers, and would see nothing of a session
            text = f"The model '{model.name}' has hooks of plugins, which do not see realtime sessions"
            raise UnsupportedParameter(text, param="model")
        return _quote(model, request.text_tokens, request.audio_tokens)

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        return _quote(model, size.tokens, 0)

    async def attempt(self, adapted: Adapted[RealtimeRequest]) -> RealtimeSession:
        candidate = adapted.candidate
        return await cast("Realtime", candidate.provider).open_realtime(adapted.request, candidate.target)

    def usage(self, call: Call) -> Usage | None:
        return None if call.encoder is None else cast("Usage | None", call.encoder.usage())

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        return error_event(error)


def error_event(error: GatewayError, event_id: str | None = None) -> bytes:
    """The event of an error; `event_id` is that of the client's event which caused it."""
    body = msgspec.json.decode(error.body())["error"]
    names = ("type", "code", "message", "param")
    return _encode({"type": "error", "error": {**{name: body.get(name) for name in names}, "event_id": event_id}})


def _quote(model: Model, text: int, audio: int) -> Quote:
    reserve = model.reserve_output(None)
    is_audio = model.price.audio_output > model.price.output
    worst = Usage(
        in_text=with_safety(text),
        in_audio=with_safety(audio),
        out_text=0 if is_audio else reserve,
        out_audio=reserve if is_audio else 0,
        estimated=True,
    )
    return Quote.of(model, prompt=Usage(in_text=text, in_audio=audio, estimated=True), worst_case=worst)
