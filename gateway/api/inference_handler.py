"""A POST to an inference endpoint: reads the request, runs the pipeline, writes the access line.

The handler reads the body as JSON or as a form, makes the `Call` and passes both to the pipeline, which answers. Sharp
edge: an answer may be finished before its call is settled; the access line needs both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from gateway.amounts import format_amount
from gateway.api.handler import KeyedHandler
from gateway.api.json_body import JsonBody
from gateway.api.multipart_body import MultipartBody
from gateway.http_client.forwarded_headers import bind
from gateway.http_server.exchange import Exchange
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.pipeline import Pipeline
from gateway.inference.services import Services
from gateway.log import AccessLine


class InferenceHandler(KeyedHandler):
    """One request to one endpoint."""

    call: Call | None = None

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        path: str,
        pipeline: Pipeline,
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
        return self.body.feed(chunk)

    async def post(self) -> None:
        """Run the call; raises the errors of a refused request."""
        assert self.key is not None
        bind(self.metadata.forwarded_headers)
        try:
            pending = self.body.complete()
            if pending is not None:
                await pending
            call = self.call = Call(self.request_id, self.endpoint, self.key, self.reply, self.task)
            call.client_gone, call.caller = self.client_gone, self
            try:
                await self.pipeline.run(
                    call,
                    self.endpoint,
                    self.body,
                    path=self.path,
                    idempotency_key=self.metadata.idempotency_key,
                    tags=self.metadata.tags,
                )
            finally:
                call.task = call.caller = None
        except asyncio.CancelledError:
            if not self.client_gone:
                raise
            super().on_connection_close()  # its body was waiting for its turn
            return
        self.call_ended()

    def call_ended(self) -> None:
        """The call was answered and settled, perhaps without its task."""
        assert self.call is not None
        self.outcome, self.detail = self.call.outcome, self.call.detail
        self.log_access()

    def on_connection_close(self) -> None:
        """The client disconnected: stop a running call, or set `client_gone` for one that is not running yet."""
        call = self.call
        if call is not None and call.running:
            self.services.disconnects.disconnect(call)
            return
        self.client_gone = True
        if call is not None:
            call.client_gone = True
        if self.task is None or self.task.done():
            super().on_connection_close()
        else:
            self.services.paced_steps.leave(self.task)

    def log_access(self) -> None:
        super().log_access()
        self.body.close()

    def counted(self) -> bool:
        return self.call is not None and self.call.record is not None

    def served_model(self) -> str:
        call = self.call
        return call.model.name if call is not None and call.model is not None else ""

    def requested_model(self) -> str:
        call = self.call
        return self.served_model() or (getattr(call.request, "model", None) or "" if call is not None else "")

    def access_line(self) -> AccessLine:
        call = self.call
        if call is None or (record := call.record) is None:
            return super().access_line()
        metadata = self.metadata
        line = AccessLine(  # by position: 1 µs less
            self.request_id,
            self.method,
            self.path,
            record.status,
            self.reply.milliseconds(),
            "",  # the time: `AccessLog.write` sets it
            self.outcome,
            record.account,
            record.key,
            record.model,
            record.provider,
            record.tokens_in,
            record.tokens_out,
            format_amount(record.cost),
            record.attempts,
            record.stream,
            metadata.client_request_id,
            metadata.organization,
            metadata.project,
            metadata.sdk,
            self.detail,
        )
        if record.status < 400 or call.error is None:
            return line
        return self._refusal_line(line, call.error)
