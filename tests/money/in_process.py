"""Calls through the pipeline in this process: no sockets to callers or upstreams, the real providers and store."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from gateway.accounts.key_record import CreatedKey
from gateway.api.endpoints.chat import ChatEndpoint
from gateway.errors import GatewayError
from gateway.http_server.exchange import Exchange
from gateway.http_server.reply import ResponseWriter
from gateway.inference.call_stages import CallRequest
from gateway.inference.endpoint import Received
from gateway.inference.pipeline import Pipeline
from gateway.ledger.api_key import ApiKey
from gateway.runtime.gateway import Gateway
from tests.money.cases import Case
from tests.money.ingress import ingress_of
from tests.money.observed import Seen
from tests.money.rounds import NO_TRUTH


class MemoryBody:
    """A request's body."""

    def __init__(self, content: bytes) -> None:
        self._content, self.size, self.is_large = content, len(content), False
        self.has_lone_surrogates = False

    def take(self) -> bytes:
        """The body."""
        return self._content

    def without_surrogates(self) -> None:
        """Nothing: no case has a lone surrogate."""

    def digest(self, path: str) -> str:
        """Nothing: no case has an Idempotency-Key."""
        return ""


class MemoryExchange:
    """A caller's connection: keeps what is written until the caller leaves."""

    def __init__(self) -> None:
        self.body, self.left, self.finished = b"", False, False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done.set_result(None)

    def answer(self, code: int, headers: Any, body: bytes) -> None:
        self.write(body)
        self.finish()

    def write_head(self, code: int, headers: Any, chunk: bytes = b"") -> asyncio.Future[None]:
        return self.write(chunk)

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        if not self.left:
            self.body += chunk
        return self._done

    def chunk_writer(self) -> Any:
        return self._write_chunk

    def _write_chunk(self, chunk: bytes) -> None:
        self.write(chunk)

    def finish(self) -> None:
        self.finished = not self.left

    def abort(self) -> None:
        """The connection is cut."""


class InProcess:
    """A `Driver`; `leave` is for the upstream."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._pipeline = Pipeline(gateway)
        self._running: dict[str, tuple[CallRequest, MemoryExchange]] = {}

    def leave(self, case: Case) -> bool:
        """The caller of a running call leaves; False if it has left, or its call has ended."""
        asked, exchange = self._running[case.name]
        if exchange.left or exchange.finished:
            return False
        exchange.left = True
        call = asked.call
        if call is not None and call.running:
            self._gateway.disconnects.disconnect(call)
        else:
            asked.client_gone = True
            if call is not None:
                call.client_gone = True
        return True

    async def call(self, case: Case, key: CreatedKey) -> Seen:
        """Run the pipeline in a task of its own, because leaving cancels it."""
        ingress = ingress_of(case)
        exchange, body = MemoryExchange(), MemoryBody(msgspec.json.encode(ingress.document(case)))
        reply = ResponseWriter(cast("Exchange", exchange), self._gateway.ids.request_id())
        endpoint = ingress.endpoint_of(case)
        asked = CallRequest(reply.headers["x-request-id"], endpoint, ApiKey(key.account, key.id), reply)
        self._running[case.name] = asked, exchange
        running = self._run(asked, endpoint, body, ingress.path_of(case))
        task = asked.task = asyncio.create_task(running)
        await asyncio.wait([task])
        del self._running[case.name]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        seen = Seen(case, NO_TRUTH, asked.request_id, body.size, left=exchange.left, status=reply.status)
        seen.words = ingress.words(exchange.body)
        seen.whole = exchange.finished and (ingress.ends(exchange.body) if case.stream else reply.status == 200)
        return seen

    async def _run(self, asked: CallRequest, endpoint: ChatEndpoint, body: MemoryBody, path: str) -> None:
        try:
            await self._pipeline.run(asked, endpoint, Received(body, path))
        except GatewayError as error:
            asked.reply.send_error(error)
