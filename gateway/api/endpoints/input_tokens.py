"""Counts of a prompt's tokens, in any dialect: no upstream is asked, and nothing is charged.

The count is the estimate by which a call's money is held. A request for it is checked like a call of the model and
counts as a request in its limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from gateway.api.endpoints.chat_dialect import ChatDialect
from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import chat_prompt
from gateway.billing.usage import Usage
from gateway.catalog import Model
from gateway.http_server.reply import JSON
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.plugins.provider import Chat
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.duplicate_keys import Examined

FREE = Price()


class InputTokensEndpoint(Endpoint[ChatRequest]):
    """`POST /v1/responses/input_tokens`; a subclass for another dialect writes another document."""

    capability = Chat
    answers = int

    permission = "chat"

    def __init__(self, dialect: ChatDialect) -> None:
        self.dialect = dialect
        self.name, self.prompt_param = f"{dialect.name}_tokens", dialect.prompt_param

    def decode(self, body: bytes | Examined, account: str, services: Services) -> ChatRequest:
        request = self.dialect.decode(body)
        request.stream = None
        return request

    def quote(
        self, request: ChatRequest, model: Model, body_size: int, adapted: Sequence[Adapted[ChatRequest]] = ()
    ) -> Quote:
        quote = Quote.of(model, prompt=Usage(), worst_case=Usage(), tokens=0, bounded=True)
        return structs.replace(quote, price=FREE, hold=0)  # the model's price may have an amount for each request

    async def attempt(self, adapted: Adapted[ChatRequest]) -> int:
        model = adapted.candidate.model
        return chat_prompt(adapted.request, factor=model.token_factor, rules=model.media_rules).tokens

    async def encode(self, call: Call, answer: int, services: Services) -> tuple[bytes, str]:
        call.used = Usage()
        call.reply.headers["x-gateway-estimated"] = "true"
        return msgspec.json.encode(self.document(answer)), JSON

    def document(self, tokens: int) -> dict[str, Any]:
        """The answer."""
        return {"object": "response.input_tokens", "input_tokens": tokens}
