"""`GET /v1/responses`: the handshake of a WebSocket, refused as an answer of HTTP, and the number of open sockets."""

from __future__ import annotations

from functools import partial

from msgspec import structs

from gateway.api.handler import KeyedHandler
from gateway.api.inference_handler import InferenceHandler
from gateway.api.json_body import JsonBody
from gateway.api.sockets.conversation import Conversation
from gateway.api.sockets.exchange import SocketExchange
from gateway.api.sockets.preparation import Preparation
from gateway.api.sockets.responses_socket import ResponsesSocket
from gateway.errors import ConcurrencyLimited, UpgradeRequired
from gateway.errors.error_form import ErrorForm
from gateway.http_server.exchange import Exchange
from gateway.http_server.websocket import WebSocket, handshake_headers
from gateway.inference.endpoint import Endpoint
from gateway.inference.pipeline import Pipeline
from gateway.inference.services import Services
from gateway.metrics.specs import CLOSE_CODES
from gateway.schemas.chat_request import ChatRequest
from gateway.uploads.budget import Budget

OPEN, CLOSED = "gateway_websockets", "gateway_websockets_closed"


class OpenSockets:
    """The open sockets of one worker, and the memory for their conversations."""

    def __init__(
        self, services: Services, pipeline: Pipeline, endpoint: Endpoint[ChatRequest], form: ErrorForm
    ) -> None:
        self._services = services
        self._pipeline, self._preparation = pipeline, Preparation(services)
        self._endpoint = endpoint
        self._form = form
        self._accounts: dict[str, int] = {}
        self._addresses: dict[str, int] = {}
        limits = services.settings.server.limits
        self._memory = Budget("bytes of conversations of sockets", limits.max_bodies, limits.max_account_bodies)

    def admit(self, account: str, address: str) -> None:
        """Count a new socket; ConcurrencyLimited if its account or its address has too many."""
        settings = self._services.settings.server.websocket
        if self._accounts.get(account, 0) >= settings.max_per_account:
            raise ConcurrencyLimited("Too many WebSockets of this account at the same time")
        if self._addresses.get(address, 0) >= settings.max_per_address:
            raise ConcurrencyLimited("Too many WebSockets from this address at the same time")
        self._accounts[account] = self._accounts.get(account, 0) + 1
        self._addresses[address] = self._addresses.get(address, 0) + 1
        self._services.metrics.add(OPEN, (), 1)

    def remove(self, account: str, address: str, code: int = 0) -> None:
        """A socket is closed, with that code; 0 if it was never open."""
        if code:
            self._services.metrics.inc(CLOSED, (str(code) if code in CLOSE_CODES else "other",))
        for counts, name in ((self._accounts, account), (self._addresses, address)):
            left = counts.pop(name) - 1
            if left:
                counts[name] = left
        self._services.metrics.add(OPEN, (), -1)

    def open(self, handler: KeyedHandler, answer: dict[str, str]) -> None:
        """Answer a handshake, and open its socket."""
        services, key, address = self._services, handler.key, handler.client_address()
        assert key is not None
        settings, limits = services.settings.server.websocket, services.settings.server.limits
        self._memory.most, self._memory.most_of_account = limits.max_bodies, limits.max_account_bodies
        self.admit(key.account, address)
        detached = handler.exchange.switch({**answer, "x-request-id": handler.request_id})
        if detached is None:
            self.remove(key.account, address)
            return
        headers = handler.headers.with_length(b"0")
        # What the handshake says about one body, and about one request, does not hold for each request.
        headers.application_data = structs.replace(
            handler.metadata, idempotency_key=None, sends_json=True, coding="identity"
        )
        user = ResponsesSocket(
            services,
            headers,
            account=key.account,
            path=handler.path,
            make_request=partial(self._request, handler.path),
            conversation=Conversation(self._memory.share(key.account), settings.max_conversation),
            on_closed=partial(self.remove, key.account, address),
        )
        socket = WebSocket(detached, user, max_message=limits.max_json_body, max_age=settings.max_age)
        user.begin(socket)
        socket.begin(detached)

    def _request(self, path: str, exchange: SocketExchange, body: JsonBody, prepares: bool) -> InferenceHandler:
        pipeline = self._preparation if prepares else self._pipeline
        request = InferenceHandler(
            self._services, exchange, path=path, pipeline=pipeline, endpoint=self._endpoint, body=body
        )
        request.reply.error_form = self._form
        return request


class ResponsesSocketHandler(KeyedHandler):
    """A handshake; a wrong key is refused first, then one where WebSocket is switched off."""

    def __init__(self, services: Services, exchange: Exchange, *, path: str, sockets: OpenSockets) -> None:
        super().__init__(services, exchange, path=path)
        self._sockets = sockets

    async def get(self) -> None:
        await self.confirm()
        if not self.services.settings.server.websocket.responses:
            raise UpgradeRequired()
        self._sockets.open(self, handshake_headers(self.headers))
        self.reply.status = 101
        self.log_access()
