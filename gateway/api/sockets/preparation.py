"""Requests that only prepare: checked as calls are, and answered with an empty response."""

from __future__ import annotations

import time
from typing import Any

from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.responses.document import ResponseDocument
from gateway.encoders.responses.events import Events
from gateway.ids import Ids
from gateway.inference.call_decode import decode_call, quote_in_turns
from gateway.inference.call_hold import check_permission
from gateway.inference.call_quote import quote_call
from gateway.inference.call_stages import CallRequest
from gateway.inference.endpoint import Endpoint, Received
from gateway.inference.services import Services
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import CompletionUsage


class Preparation:
    """The stages of a call up to its hold: no upstream gets the request, and nothing is held or charged."""

    __slots__ = ("_services",)

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(
        self,
        asked: CallRequest,
        endpoint: Endpoint[Any],
        received: Received,
    ) -> None:
        """Answer one request, as `Pipeline.run` does."""
        services = self._services
        try:
            if received.body.is_large:
                await quote_in_turns(asked, endpoint, services, received, fetch=False)
            else:
                decode_call(asked, endpoint, services, received)
                quote_call(asked, endpoint, services)
        finally:
            await check_permission(asked, services)  # its error replaces that of the request
        assert asked.model is not None, "it has a quote"
        asked.reply.begin(200, _empty_response(asked.request_id, asked.content, asked.model.name))
        asked.reply.exchange.finish()


def _empty_response(request_id: str, request: ChatRequest, model: str) -> bytes:
    """The events of a response without output."""
    form = AnswerForm(Ids().completion_id(request_id), int(time.time()), model)
    document, events = ResponseDocument(form, request), Events()
    states = {
        "response.created": document.write("in_progress"),
        "response.completed": document.write("completed", usage=CompletionUsage()),
    }
    return b"".join([events.frame(kind, b'"response":%b' % state) for kind, state in states.items()])
