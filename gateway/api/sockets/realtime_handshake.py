"""`GET /v1/realtime`: the handshake, which holds the first call and opens the session at a provider.

The upstream is connected before the client gets 101, so every refusal is an answer of HTTP. A browser cannot send
headers with a handshake; it offers its key as a subprotocol.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from gateway import errors
from gateway.api.endpoints.realtime import RealtimeEndpoint
from gateway.api.handler import KeyedHandler
from gateway.api.sockets.handshake import OpenSockets
from gateway.api.sockets.realtime_calls import Origin
from gateway.api.sockets.realtime_socket import RealtimeSocket
from gateway.http_client.forwarded_headers import bind
from gateway.http_client.send_state import track
from gateway.http_server.exchange import Exchange
from gateway.http_server.websocket import WebSocket, handshake_headers
from gateway.inference.call import Call
from gateway.inference.call_end import fail, fail_stopped, settle
from gateway.inference.call_hold import check_permission, hold_cost
from gateway.inference.call_quote import quote_call, with_tags
from gateway.inference.call_stages import CallRequest
from gateway.inference.services import Services
from gateway.log import gateway_log
from gateway.plugins.realtime_session import RealtimeSession

PROTOCOL: Final = "realtime"
MAX_QUERY: Final = 2048  # characters


class RealtimeHandler(KeyedHandler):
    """A handshake, up to the upgrade."""

    endpoint_name = RealtimeEndpoint.name

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        path: str,
        query: str,
        model: str,
        endpoint: RealtimeEndpoint,
        sockets: OpenSockets,
    ) -> None:
        super().__init__(services, exchange, path=path)
        self._query = query
        self._model = model  # that the path names; empty if it names none
        self._endpoint = endpoint
        self._sockets = sockets

    async def get(self) -> None:
        """Open a session; raises the errors of a refused request."""
        assert self.key is not None
        bind(self.metadata.forwarded_headers)
        asked = self.asked = CallRequest(
            self.request_id,
            self._endpoint,
            self.key,
            self.reply,
            self.task,
            self,
            self.client_gone,
            session=self.metadata.session,
        )
        traces, services = self.services.traces.current, self.services
        if traces is not None:
            asked.trace = traces.begin(self.metadata.forwarded_headers, self.path)
        try:
            upgrade = handshake_headers(self.headers)
            asked.content = self._endpoint.decode(self._named_model(), self.key.account, services)
            quoted = quote_call(asked, self._endpoint, services)
            if services.settings.server.tags:
                quoted = with_tags(quoted, asked, self.metadata.tags, services)
        except errors.GatewayError:
            await check_permission(asked, services)
            raise
        address = self.client_address()
        self._sockets.admit(self.key.account, address)
        leave = partial(self._sockets.remove, self.key.account, address)
        is_open = False
        try:
            call = await hold_cost(asked, quoted, self._endpoint, services)
            session = await self._opened(call)
            if session is not None:
                is_open = self._upgrade(upgrade, asked, call, session, leave)
        finally:
            if not is_open:
                leave()

    def _named_model(self) -> str:
        if len(self._query) > MAX_QUERY:
            raise errors.InvalidValue("The query is too long", param="model")
        fields = parse_qs(self._query, max_num_fields=32)
        named = fields.get("model") or fields.get("deployment")  # of Azure's clients
        return named[0] if named else self._model

    async def _opened(self, call: Call) -> RealtimeSession | None:
        """The session; None if the call has failed, which is answered and settled then."""
        services, session = self.services, None
        call.sending.account, call.sending.trace = call.key.account, self.asked.trace if self.asked else None
        track(call.sending)
        try:
            if not call.client_gone:
                session = await services.dispatcher.call(
                    call.adapted, self._endpoint.attempt, call.attempts, kind=RealtimeSession
                )
                if call.stop_by or call.client_gone:
                    raise asyncio.CancelledError
        except asyncio.CancelledError:
            if not (call.stopped or call.client_gone):
                raise
            fail_stopped(call, services)
        except errors.GatewayError as error:
            if call.stopped:
                fail_stopped(call, services)
            else:
                fail(call, error, services)
        except Exception as error:
            # The handshake's edge, as that of the pipeline: after a bug the client still gets an answer.
            gateway_log.error("%s failed in provider %s", call.request_id, call.provider, exc_info=error)
            fail(call, errors.InternalError(), services)
        else:
            return session
        self._ended(call, session)
        return None

    def _upgrade(
        self, upgrade: dict[str, str], asked: CallRequest, call: Call, session: RealtimeSession, leave: partial[None]
    ) -> bool:
        """Answer 101 and hand the socket over; False if the client has left meanwhile."""
        offered = [name.strip() for name in (self.headers.get("Sec-Websocket-Protocol") or "").split(",")]
        if PROTOCOL in offered:
            upgrade["Sec-WebSocket-Protocol"] = PROTOCOL
        detached = self.exchange.switch({**self.reply.headers, **upgrade})
        if detached is None:
            call.client_gone = True
            self._ended(call, session)
            return False
        assert self.key is not None
        candidate, metadata, settings = call.attempts[-1], self.metadata, self.services.settings.server.websocket
        names = (call.model.name, asked.content.model)
        origin = Origin(
            self.key,
            self.exchange,
            self.path,
            metadata.forwarded_headers,
            metadata.session,
            metadata.tags,
            asked.content.model,
        )
        user = RealtimeSocket(self, self._endpoint, origin, candidate, session, names=names, on_closed=leave)
        socket = WebSocket(
            detached,
            user,
            max_message=settings.realtime_max_event,
            max_age=settings.max_age,
            max_idle=settings.realtime_max_idle,
        )
        self.reply.status = 101
        self.asked = None  # the session logs its calls
        self.log_access()
        user.begin(socket, asked, call)
        socket.begin(detached)
        return True

    def _ended(self, call: Call, session: RealtimeSession | None) -> None:
        """The call of the handshake ends without a session."""
        call.running = False
        settle(call, self.services)
        if session is not None:
            session.close()
        asked = self.asked
        if asked is not None:
            asked.task = asked.caller = call.task = call.caller = None
        self.call_ended()

    def call_ended(self) -> None:
        """The call was answered and settled, perhaps without its task."""
        call = self.asked.call if self.asked is not None else None
        if call is not None:
            self.outcome, self.detail = call.outcome, call.detail
        self.log_access()

    def on_connection_close(self) -> None:
        """The client disconnected before the upgrade."""
        call = self.asked.call if self.asked is not None else None
        if call is not None and call.running:
            self.services.disconnects.disconnect(call)
            return
        self.client_gone = True
        if self.asked is not None:
            self.asked.client_gone = True
        if call is not None:
            call.client_gone = True
        if self.task is None or self.task.done():
            super().on_connection_close()
