"""The events of a client on their way to the upstream of a realtime session.

They wait in a queue, because an event may have to wait for its hold, and the upstream may read slowly. While the queue
is full, the client is not read. A task sends them; it ends when none waits. Sharp edge: between two calls nothing is
sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from tornado.iostream import StreamClosedError

from gateway.api.endpoints.realtime import error_event
from gateway.api.sockets.realtime_calls import RealtimeCalls
from gateway.errors import BadRequest, GatewayError, InternalError, UpstreamTimeout
from gateway.http_client.send_state import track
from gateway.http_server.websocket import WebSocket
from gateway.inference.services import Services
from gateway.ledger.api_key import ApiKey
from gateway.log import gateway_log
from gateway.plugins.realtime_session import RealtimeSession
from gateway.routing.router import Candidate
from gateway.schemas.large_json import LARGE
from gateway.schemas.realtime.client_events import CREATE, ClientEvent, event_id_of, read_client_event
from gateway.uploads.budget import Share

QUEUED: Final = 256 * 1024  # bytes of events that wait, with one more event
MAX_ASKED: Final = 4  # responses of a session that a client may ask for at a time
SEND_WITHIN: Final = 30.0  # seconds in which the upstream takes an event


class Waiting(NamedTuple):
    """An event of the client, and its share of the memory for bodies if it is large."""

    text: bytes
    share: Share | None


async def _to_nobody(event: bytes) -> None:
    raise StreamClosedError


def _ignore(error: GatewayError) -> None:
    """The session has ended already."""


class ClientInput:
    """`answer` sends an event to the client; `cut` ends the session with an error."""

    def __init__(
        self,
        services: Services,
        key: ApiKey,
        candidate: Candidate,
        session: RealtimeSession,
        calls: RealtimeCalls,
        *,
        names: tuple[str, ...],
        answer: Callable[[bytes], Awaitable[None]],
        cut: Callable[[GatewayError], None],
    ) -> None:
        self.awaited = 0  # responses that were asked for and have not begun
        self.client_gone = False
        self._services = services
        self._key = key
        self._candidate = candidate
        self._session = session
        self._calls = calls
        self._names = names
        self._answer = answer
        self._cut = cut
        self._socket: WebSocket | None = None
        self._queue: deque[Waiting] = deque()
        self._queued = 0  # bytes
        self._task: asyncio.Task[None] | None = None

    def put(self, text: bytes, share: Share | None, socket: WebSocket) -> None:
        """Queue an event."""
        self._socket = socket
        self._queue.append(Waiting(text, share))
        self._queued += len(text)
        if self._queued > QUEUED:
            socket.hold(True)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())

    def begun(self) -> None:
        """A response has begun, or was refused by the upstream."""
        self.awaited = max(0, self.awaited - 1)

    def close(self) -> None:
        """The client has left, or the session has ended: nothing more is sent."""
        self.client_gone, self._socket = True, None
        self._answer, self._cut = _to_nobody, _ignore  # they refer to the session, which refers to this object
        if self._task is not None:
            self._task.cancel()
        for event in self._queue:
            if event.share is not None:
                event.share.close()
        self._queue.clear()

    async def _write(self) -> None:
        """Pass on the events that wait."""
        try:
            while self._queue:
                event = self._queue.popleft()
                try:
                    await self._pass_on(event.text)
                finally:
                    self._queued -= len(event.text)
                    if event.share is not None:
                        event.share.close()
                if self._queued <= QUEUED and self._socket is not None:
                    self._socket.hold(False)
        except StreamClosedError:
            pass  # the client has left
        except GatewayError as error:
            self._cut(error)
        except Exception as error:
            # The socket's edge for the other direction: after a bug the session ends, and is settled.
            gateway_log.error("%s failed in a realtime session", self._calls.request_id, exc_info=error)
            self._cut(InternalError())
        finally:
            self._task = None

    async def _pass_on(self, text: bytes) -> None:
        try:
            if len(text) > LARGE:
                async with self._services.paced_steps.turn(self._key.account, self):
                    event = self._read(text)
            else:
                event = self._read(text)
        except BadRequest as error:
            await self._answer(error_event(error, event_id_of(text)))
            return
        await self._calls.opened.wait()
        await self._calls.cover(event)
        await self._calls.opened.wait()  # a response may have ended meanwhile
        if event.type == CREATE:
            self.awaited += 1
        call = self._calls.call
        if call is not None:
            track(call.sending)  # this task is not the call's own, and a provider asks for the `current_call`
        try:
            async with asyncio.timeout(SEND_WITHIN):
                await self._session.send(event.body)
        except TimeoutError:
            raise UpstreamTimeout(detail=f"the upstream read nothing for {SEND_WITHIN:g} s") from None
        except GatewayError:
            raise
        except BaseException as error:
            # A third-party provider may raise anything.
            raise self._services.dispatcher.contain(self._candidate, error) from error

    def _read(self, text: bytes) -> ClientEvent:
        event = read_client_event(text, names=self._names, upstream=self._candidate.target.model)
        if event.type == CREATE and self.awaited + self._calls.running >= MAX_ASKED:
            raise BadRequest("Too many responses are in progress", code="too_many_responses")
        return event
