"""The part of the pipeline that differs between resources: decoding, quote, provider method, encoding.

An endpoint is one stateless object per resource; the state of a request is in its `Call`. `Endpoint` has the defaults,
`gateway.api.endpoints` has the endpoints. Sharp edge: no endpoint holds, settles or refunds; only the pipeline does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from gateway.billing.delivered import Delivered
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage
from gateway.catalog import Model
from gateway.errors import GatewayError, InternalError, InvalidValue
from gateway.inference.call import Call
from gateway.inference.services import Services
from gateway.inference.sinks import EventSink
from gateway.ledger import Ledger
from gateway.ledger.inflight_checkpoint import Slot
from gateway.routing.continuation import Continuation
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.media_addresses import MediaAddress
from gateway.schemas.request_fields import RequestFields
from gateway.sse import encode_data

R = TypeVar("R", bound=RequestFields)


class StreamEncoder(Protocol):
    """Turns what a provider yields into frames for the client, and counts what was delivered."""

    delivered: Delivered

    @property
    def content_started(self) -> bool:
        """Whether any content of the answer was encoded."""

    def feed(self, item: Any) -> bytes:
        """The frames of `item`; may be empty."""

    def close(self) -> bytes:
        """The frames that end a complete answer; raises an UpstreamError when it is not complete."""


class HoldLimit(Protocol):
    """How much a stream may deliver with the money it holds."""

    def due(self, delivered: Delivered) -> bool:
        """Whether the stream must extend its hold."""

    async def extend(self, delivered: Delivered) -> None:
        """Hold more; raises the caller's error when the account has no more."""


class Body(Protocol):
    """A request's body after all of it was read."""

    size: int
    has_lone_surrogates: bool  # they were replaced, which `x-gateway-dropped-params` says

    @property
    def is_large(self) -> bool:
        """Whether it takes long to decode."""

    def take(self) -> Any:
        """The argument of `decode`; raises the first error of the body."""

    def without_surrogates(self) -> Any:
        """What `take` returned without lone surrogates; None if it has none. InvalidValue."""

    def digest(self, path: str) -> str:
        """A digest that is equal for equal requests; compared when an Idempotency-Key is used again."""


class Received(Struct, frozen=True):
    """What a call needs of a request as it arrived. `tags`: the text of their header."""

    body: Body
    path: str
    idempotency_key: str | None = None
    tags: str | None = None
    headers: Mapping[str, str] = {}


class RequestSize(Struct, frozen=True):
    """The size of a request that `gateway explain` checks without a call."""

    tokens: int = 1000  # of the prompt
    max_tokens: int | None = None
    stream: bool = False
    images: int = 1
    seconds: float = 60.0  # of audio


class Endpoint(ABC, Generic[R]):
    """The base class: what every endpoint must have is abstract, and the rest has defaults.

    An endpoint has `attempt` and `encode` for whole answers, `attempt_stream` and `stream_encoder` for streams, or all.
    """

    name: str  # in metrics and in records of calls
    permission: str = ""  # in the `endpoints` of models and keys, if that is not the name
    capability: ClassVar[type]  # the class that a provider must implement
    answers: ClassVar[type] = object  # the type of a whole answer
    prompt_param: str = "messages"  # the `param` of errors about the prompt
    filter_code: ClassVar[str] = "content_filter"  # the error code when the upstream's filter refused the prompt
    names_model: ClassVar[bool] = False  # the answer has a field `model`
    opens_sealed: ClassVar[bool] = False  # its requests may hold what the gateway sealed for their account

    def for_path(self, argument: str, query: str = "") -> Endpoint[R]:
        """The endpoint of a path that has a part of the request: the model, for example. `argument`: that part."""
        return self

    # Before the call -------------------------------------------------------------------------------------------------

    @abstractmethod
    def decode(self, body: Any, account: str, services: Services) -> R:
        """The validated request of an account, which may hold what the gateway sealed for it; raises BadRequest or its
        subclasses only.
        """

    def wants_stream(self, request: R) -> bool:
        """Whether the answer is a stream."""
        return False

    def is_relayed(self, call: Call) -> bool:
        """Whether the provider's answer is sent on as it arrives."""
        return call.stream

    def media_addresses(self, request: R) -> Sequence[MediaAddress]:
        """Images and documents that the request names by address."""
        return ()

    def with_media(self, request: R, contents: Mapping[str, bytes]) -> R:
        """The request with the content of addresses, as data URLs."""
        return request

    def for_model(self, request: R, model: Model) -> R:
        """The request without what the model's price does not cover."""
        return request

    @abstractmethod
    def quote(self, request: R, model: Model, body_size: int, adapted: Sequence[Adapted[R]] = ()) -> Quote:
        """The worst cost and the tokens; raises BadRequest where the model lacks support. `body_size` is in bytes."""

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        """The quote of a request of `size`, for `gateway explain`."""
        raise InvalidValue(f"the endpoint {self.name} has no estimate")

    def clamp(self, quote: Quote, amount: int) -> Quote | None:
        """A smaller quote of at most `amount` nano units, for the hold policy "clamp"; None when there is none."""
        return None

    def lowerable(self, quote: Quote) -> Quote:
        """The quote with the least amount to which its hold may be lowered."""
        return quote

    def limit_output(self, adapted: Adapted[R], tokens: int) -> Adapted[R]:
        """The request of a candidate with an output limit of `tokens`."""
        return adapted

    def check_candidate(self, request: R, candidate: Candidate) -> None:
        """Raise BadRequest for limits of this candidate's provider that are not request fields."""

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
        """The sink that sends a streamed answer to the client."""
        return EventSink(call.reply, services.keep_alive, claim=call.claim)

    def stream_encoder(self, call: Call, opened: Opened[Any], services: Services) -> StreamEncoder:
        """The encoder of a stream that has yielded its first item."""
        raise InternalError()

    def continuation(self, call: Call, opened: Opened[Any], services: Services) -> Continuation | None:
        """The way to the rest of a stream that its upstream cuts; None if a cut stream stays cut."""
        return None

    def hold_limit(self, call: Call, ledger: Ledger) -> HoldLimit | None:
        """The object that extends the hold of a stream; None where the hold covers every answer."""
        return None

    def checkpoint(self, call: Call, services: Services) -> Slot | None:
        """The slot in which a stream stores how much it delivered, for the charge if this worker is killed."""
        return None

    def last_frames(self, call: Call, frames: bytes) -> bytes:
        """The frames that end a complete stream; `frames` are those of its encoder."""
        return frames

    def stream_ended(self, call: Call) -> None:
        """Called when the stream has ended or was cut."""

    # The end ---------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        """What a stream used so far; None while nothing is charged."""
        return None

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        """The frame of an error inside the stream of `call`, whose encoder may not exist yet."""
        return encode_data(error.body())
