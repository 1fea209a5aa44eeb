"""The half of the walk that speaks with providers: who can serve, the first answer, and its way to the client.

Every model endpoint extends `AnsweringHandler`; its `serve` is made of `call_whole` and `deliver`, or of `open_stream`,
`relay` and `end_stream`. Sharp edge: until `open_stream` has returned nothing was sent, so every failure still has a
true status; after it a failure ends the stream without its end marker.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from gateway.api.inference_handler import InferenceHandler
from gateway.catalog import Model
from gateway.errors import GatewayError, NoHealthyUpstream, UnsupportedParameter
from gateway.inference.call import Call
from gateway.inference.event_stream import EventStream
from gateway.inference.hold_extension import HoldExtension, SoundHoldExtension
from gateway.inference.text_fast_path import TextRelay, open_lane
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.isolation import TURN, yield_to_loop
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted, adapt
from gateway.routing.router import Candidate
from gateway.schemas.request_fields import RequestFields
from gateway.sse import encode_data

if TYPE_CHECKING:
    from gateway.http_server.exchange import Exchange
    from gateway.runtime.gateway import Gateway

R = TypeVar("R", bound=RequestFields)
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Encoder(Protocol[T_contra]):
    """Turns what a provider yields into frames for the client, and counts what was delivered."""

    @property
    def content_started(self) -> bool:
        """Whether anything of the answer itself has been seen."""

    @property
    def delivered_units(self) -> int:
        """Text delivered so far, in quarter tokens."""

    def feed(self, item: T_contra) -> bytes:
        """The frames that `item` makes; none is fine."""

    def close(self) -> bytes:
        """The frames that end a whole answer; raises when it is not whole."""


class AnsweringHandler(InferenceHandler[R]):
    """See the module."""

    capability: ClassVar[type]  # what a provider must implement to serve this endpoint
    answers: ClassVar[type] = object  # what it returns for a whole answer

    stream: EventStream | None = None  # of a streamed answer

    def __init__(self, gateway: Gateway, exchange: Exchange, *, path: str, argument: str = "") -> None:
        super().__init__(gateway, exchange, path=path, argument=argument)
        self.adapted: list[Adapted[R]] = []  # the request as each candidate will see it

    def adapt(self, request: R, model: Model) -> None:
        """Find who can serve the request, and what each of them will see of it; BadRequest when nobody can."""
        if self.endpoint not in model.endpoints:
            raise UnsupportedParameter(f"The model '{model.name}' does not serve this endpoint", param="model")
        candidates = self.gateway.router.resolve(model, self.capability)
        if model.fallbacks:  # which may be models of another kind on a provider that can do both
            candidates = [one for one in candidates if self.endpoint in one.model.endpoints]
            if not candidates:
                raise NoHealthyUpstream()
        self.adapted = adapt(
            request,
            candidates,
            self.capability,
            unknown_params=self.gateway.settings.server.unknown_params,
            check=self.check_candidate,
        )

    async def call_whole(self, call: Call, attempt: Callable[[Adapted[R]], Awaitable[T]]) -> T:
        """The first whole answer that `attempt` gets from a candidate; the headers then say who served."""
        started = time.monotonic()
        try:
            answer = await self.gateway.dispatcher.call(self.adapted, attempt, call.attempts, kind=self.answers)
        finally:
            call.upstream_waited = time.monotonic() - started
        self.describe(call)
        return answer

    async def open_stream(self, call: Call, attempt: Callable[[Adapted[R]], AsyncIterator[T]]) -> Opened[T]:
        """The first stream that yields something; meanwhile the client is kept waiting by comments."""
        self.stream = self.make_stream()
        started = time.monotonic()
        try:
            opened = await self.gateway.dispatcher.open(self.adapted, attempt, call.attempts)
        finally:
            call.upstream_waited = time.monotonic() - started
        self.describe(call)
        return opened

    async def relay(
        self,
        call: Call,
        opened: Opened[T],
        encoder: Encoder[T],
        *,
        extension: HoldExtension | SoundHoldExtension | None = None,
    ) -> bytes:
        """Send what `encoder` makes of the stream; its last frames, which are sent once the call is settled."""
        item: T | None = opened.first
        rest, stream = opened.rest, self.stream
        assert stream is not None
        slot: Slot | None = None  # where it is noted what was delivered, in case this worker is killed
        beside: TextRelay | None = None  # once there is a shorter way for text
        taken, started = 0, time.monotonic()
        try:
            while item is not None:
                frames = encoder.feed(item)
                if extension is not None and encoder.delivered_units >= extension.until:
                    await extension.extend(encoder.delivered_units)
                if frames:
                    call.chunks += 1
                    if call.first_token is None and encoder.content_started:
                        call.first_token = call.since_start()
                        slot = self.note_delivery(call)
                        beside = open_lane(rest, call, encoder=encoder, stream=stream, slot=slot, extension=extension)
                    if slot is not None:
                        slot.delivered(encoder.delivered_units)
                    slow = stream.send(frames)
                    frames = b""  # not kept while the upstream is silent
                    if slow is not None:
                        await slow
                taken += 1
                if not taken % TURN or self.told_to_end():
                    await yield_to_loop()
                item = await anext(rest, None)
                if beside is not None and beside.slow is not None:
                    slow, beside.slow = beside.slow, None
                    await slow
            return encoder.close()
        except GatewayError as error:
            self.gateway.dispatcher.failed(opened.candidate, error)
            raise
        except BaseException as error:
            # A third-party provider may raise anything, and yield anything that the shaper chokes on.
            raise self.gateway.dispatcher.contain(opened.candidate, error) from error
        finally:
            call.upstream_waited += time.monotonic() - started  # before the settlement, which tells the metrics
            if beside is not None:
                beside.close()
            await self._close(opened)

    def end_stream(self, call: Call, last: bytes) -> None:
        """Settle, then end a streamed answer as whole."""
        assert self.stream is not None
        self.settle(call)
        self.stream.finish(last)

    async def _close(self, opened: Opened[T]) -> None:
        try:
            await opened.close()
        except BaseException as error:
            # Third-party clean-up: it cannot spoil an answer that is complete, nor hide why one is not.
            self.gateway.dispatcher.contain(opened.candidate, error)

    def describe(self, call: Call) -> None:
        """Headers that say who served, and what it was not told."""
        served = call.attempts[-1]
        if len(self.adapted) == 1:
            dropped = self.adapted[0].dropped
        else:
            dropped = next(adapted.dropped for adapted in self.adapted if adapted.candidate is served)
        if dropped:
            self.set_header("x-gateway-dropped-params", ",".join(dropped))
        if self.gateway.settings.server.debug_headers:
            self.set_header("x-gateway-model", served.model.name)
            self.set_header("x-gateway-provider", served.target.provider)
            self.set_header("x-gateway-attempts", str(len(call.attempts)))

    async def fallback_name(self, call: Call) -> str:
        """The model that the answer of a fallback names: the fallback if the caller may use it, else the one asked for.

        Admission decides about the model asked for alone, so this reads the store once. The answer does not depend on
        the read: where it fails, the answer names the model asked for.
        """
        served = call.attempts[-1].model
        try:
            view = await self.confirm()
        except GatewayError:
            return call.model.name
        return served.name if view.permits(served.name, served.groups) else call.model.name

    async def fallback_stream_name(self, call: Call, opened: Opened[T]) -> str:
        """`fallback_name` of a stream that no relay has taken over, so that it is closed here when this fails."""
        try:
            return await self.fallback_name(call)
        except BaseException:
            await self._close(opened)
            raise

    def tell_estimated(self) -> None:
        """Say that the answer's counts are estimates."""
        self.set_header("x-gateway-estimated", "true")

    def close_stream(self) -> None:
        if self.stream is not None:
            self.stream.close()

    # What an endpoint may fill in ------------------------------------------------------------------------------------

    def check_candidate(self, request: R, candidate: Candidate) -> None:
        """Raise a BadRequest for what this candidate's provider cannot do beside the request's fields."""

    def make_stream(self) -> EventStream:
        """What carries a streamed answer to the client."""
        return EventStream(self, self.gateway.pulse, claim=self.claim)

    def note_delivery(self, call: Call) -> Slot | None:
        """Where to note the text a stream delivers, so that it is charged for even if this worker is killed."""
        return None

    def headers_sent(self) -> bool:
        """Whether the status has left, so that an error can no longer be one."""
        return self.stream is not None and self.stream.committed

    def end_in_stream(self, error: GatewayError) -> None:
        """Tell a client that already has a status 200."""
        assert self.stream is not None
        self.stream.fail(self.error_frame(error))

    def error_frame(self, error: GatewayError) -> bytes:
        """An error as this endpoint's streams tell it."""
        return encode_data(error.body())
