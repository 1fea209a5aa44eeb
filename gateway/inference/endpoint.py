"""What an endpoint of `/v1` adds to the one pipeline: decoding, the quote, the provider's method, the encoding.

An endpoint is one stateless object per resource; all that belongs to a request is in its `Call`. `Endpoint` has the
defaults, `gateway.api.endpoints` the endpoints. Sharp edge: no endpoint holds, settles or refunds; that stands once, in
the pipeline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from gateway.billing.delivered import Delivered
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage
from gateway.errors import GatewayError, InternalError, InvalidValue
from gateway.inference.call import Call
from gateway.inference.sinks import EventSink
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.request_fields import RequestFields
from gateway.sse import encode_data

if TYPE_CHECKING:
    from gateway.catalog import Model
    from gateway.config.settings import Settings
    from gateway.inference.services import Services
    from gateway.ledger import Ledger
    from gateway.ledger.inflight_checkpoint import Slot
    from gateway.routing.dispatcher import Opened
    from gateway.routing.router import Candidate

R = TypeVar("R", bound=RequestFields)


class StreamEncoder(Protocol):
    """Turns what a provider yields into frames for the client, and counts what was delivered."""

    delivered: Delivered

    @property
    def content_started(self) -> bool:
        """Whether anything of the answer itself has been seen."""

    def feed(self, item: Any) -> bytes:
        """The frames that `item` makes; none is fine."""

    def close(self) -> bytes:
        """The frames that end a whole answer; raises when it is not whole."""


class HoldLimit(Protocol):
    """How far a stream may go on the money it holds."""

    def due(self, delivered: Delivered) -> bool:
        """Whether it must ask for more."""

    async def extend(self, delivered: Delivered) -> None:
        """Hold more; raises what the caller is told when there is none."""


class Body(Protocol):
    """A request's body once all of it is here."""

    size: int

    def take(self) -> Any:
        """What `decode` reads; raises the first fault of the body."""

    def digest(self, path: str) -> str:
        """What makes two requests with one Idempotency-Key the same."""


class RequestSize(Struct, frozen=True):
    """A request that somebody only asks about, in `gateway explain`."""

    tokens: int = 1000  # of the prompt
    max_tokens: int | None = None
    stream: bool = False
    images: int = 1
    seconds: float = 60.0  # of sound


class Endpoint(Generic[R]):
    """The defaults; a subclass is an endpoint."""

    name: ClassVar[str]  # in metrics, and in a model's `endpoints`
    capability: ClassVar[type]  # what a provider must implement to serve it
    answers: ClassVar[type] = object  # what a provider returns for a whole answer
    prompt_param: ClassVar[str] = "messages"  # the field that errors about the prompt are about
    filter_code: ClassVar[str] = "content_filter"  # of a prompt that the upstream's filter refused
    names_model: ClassVar[bool] = False  # the answer has a field `model`

    # Before the call -------------------------------------------------------------------------------------------------

    def decode(self, body: Any, settings: Settings) -> R:
        """The validated request; raises the BadRequest branch only."""
        raise InternalError()

    def wants_stream(self, request: R) -> bool:
        """Whether the answer is a stream."""
        return False

    def is_relayed(self, call: Call) -> bool:
        """Whether the provider's answer is passed on as it comes."""
        return call.stream

    def quote(self, request: R, model: Model, body_size: int) -> Quote:
        """What it may cost and count at most; raises a BadRequest for what the model cannot do."""
        raise InternalError()

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        """The quote of a request of that size, for `gateway explain`."""
        raise InvalidValue(f"the endpoint {self.name} has no estimate")

    def clamp(self, quote: Quote, amount: int) -> Quote | None:
        """A smaller quote that `amount` pays for, under the hold policy "clamp"; None when there is none."""
        return None

    def limit_output(self, request: R, tokens: int) -> R:
        """The request with that output limit, in the caller's spelling."""
        return request

    def check_candidate(self, request: R, candidate: Candidate) -> None:
        """Raise a BadRequest for what this candidate's provider cannot do beside the request's fields."""

    # The call --------------------------------------------------------------------------------------------------------

    def attempt(self, adapted: Adapted[R]) -> Awaitable[Any]:
        """One call of a provider for a whole answer."""
        raise InternalError()

    def attempt_stream(self, adapted: Adapted[R]) -> AsyncIterator[Any]:
        """One call of a provider for a stream."""
        raise InternalError()

    async def encode(self, call: Call, answer: Any, services: Services) -> tuple[bytes, str]:
        """Body and media type of a whole answer; sets `call.used`."""
        raise InternalError()

    def sink(self, call: Call, services: Services) -> EventSink:
        """What carries a streamed answer to the client."""
        return EventSink(call.reply, services.keep_alive, claim=call.claim)

    def stream_encoder(self, call: Call, opened: Opened[Any], services: Services) -> StreamEncoder:
        """What encodes a stream that has yielded its first item."""
        raise InternalError()

    def hold_limit(self, call: Call, ledger: Ledger) -> HoldLimit | None:
        """What extends the hold of a stream; None where the hold covers every answer."""
        return None

    def checkpoint(self, call: Call, services: Services) -> Slot | None:
        """Where to note the text a stream delivers, so that it is charged for even if this worker is killed."""
        return None

    def last_frames(self, call: Call, frames: bytes) -> bytes:
        """The frames that end a whole stream, given those of its encoder."""
        return frames

    def stream_ended(self, call: Call) -> None:
        """The stream was read to its end, or broke off."""

    # The end ---------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        """What a stream used so far; None while nothing is owed."""
        return None

    def error_frame(self, error: GatewayError) -> bytes:
        """An error as this endpoint's streams tell it."""
        return encode_data(error.body())
