"""A POST to an inference endpoint: reads the request, runs the pipeline, writes the access line.

The handler reads the body as JSON or as a form, makes the `Call` and passes both to the pipeline, which answers. Sharp
edge: an answer may be finished before its call is settled; the access line needs both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from gateway.api.handler import KeyedHandler
from gateway.api.json_body import JsonBody
from gateway.api.multipart_body import MultipartBody
from gateway.api.request_log import log_request
from gateway.http_client.forwarded_headers import bind, with_named
from gateway.http_server.client_address import MAX_READ
from gateway.http_server.exchange import Exchange
from gateway.inference.call_stages import CallRequest
from gateway.inference.endpoint import Endpoint, Received
from gateway.inference.services import Services


class RunsCalls(Protocol):
    """`Pipeline`, or what stands for it."""

    async def run(
        self,
        asked: CallRequest,
        endpoint: Endpoint[Any],
        received: Received,
    ) -> None: ...


class InferenceHandler(KeyedHandler):
    """One request to one endpoint."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        path: str,
        pipeline: RunsCalls,
        endpoint: Endpoint[Any],
        body: JsonBody | MultipartBody,
    ) -> None:
        super().__init__(services, exchange, path=path)
        self.pipeline = pipeline
        self.endpoint = endpoint
        self.endpoint_name = endpoint.name
        self.body = body

    def on_authenticated(self) -> Awaitable[None] | None:
        """Check the length of the body; confirm the key before a large body is read."""
        return self.body.begin(self) if self.method == "POST" else None

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass bytes of the body to its reader; the transport enforces the size."""
        return self.body.feed(chunk) if self.method == "POST" else None

    async def post(self) -> None:
        """Run the call; raises the errors of a refused request."""
        assert self.key is not None
        forwarded, names = self.metadata.forwarded_headers, self.services.settings.forwarded
        bind(with_named(forwarded, names, self.headers) if names else forwarded)
        try:
            if self.endpoint.opens_sealed and not self.services.sealed_text.is_ready:
                await self.services.sealed_text.prepare()
            pending = self.body.complete()
            if pending is not None:
                await pending
            asked = self.asked = CallRequest(
                self.request_id,
                self.endpoint,
                self.key,
                self.reply,
                self.task,
                self,
                self.client_gone,
                session=self.metadata.session,
            )
            if self.services.traces.current is not None:
                asked.trace = self.services.traces.current.begin(self.metadata.forwarded_headers, self.path)
            try:
                await self.pipeline.run(
                    asked,
                    self.endpoint,
                    Received(self.body, self.path, self.metadata.idempotency_key, self.metadata.tags, self.headers),
                )
            finally:  # the task and the handler refer to the request and its call
                asked.task = asked.caller = None
                if asked.media is not None:
                    asked.media.close()
                if asked.call is not None:
                    asked.call.task = asked.call.caller = None
        except asyncio.CancelledError:
            if not self.client_gone:
                raise
            super().on_connection_close()  # its body was waiting for its turn
            return
        self.call_ended()

    def call_ended(self) -> None:
        """The call was answered and settled, perhaps without its task."""
        asked = self.asked
        assert asked is not None
        call = asked.call
        self.outcome, self.detail = (asked.outcome, "") if call is None else (call.outcome, call.detail)
        self.log_access()

    def on_connection_close(self) -> None:
        """The client disconnected: stop a running call, or set `client_gone` for one that is not running yet."""
        asked = self.asked
        call = asked.call if asked is not None else None
        if call is not None and call.running:
            self.services.disconnects.disconnect(call)
            return
        self.client_gone = True
        if asked is not None:
            asked.client_gone = True
        if call is not None:
            call.client_gone = True
        if self.task is None or self.task.done():
            super().on_connection_close()
        else:
            self.services.paced_steps.leave(self.task)

    def log_access(self) -> None:
        if not self.logged:
            self.logged = True
            record, addresses = log_request(self), self.services.caller_addresses
            if addresses.keeps and record is not None:
                trusted = self.services.settings.server.trusted_proxies
                forwarded = (self.headers.get("X-Forwarded-For") or "")[-MAX_READ:] if trusted else ""
                addresses.note((record.key, record.request_id, self.exchange.context.remote_ip, forwarded, trusted))
        self.body.close()
