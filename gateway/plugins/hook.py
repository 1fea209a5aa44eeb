"""The base classes of asynchronous hooks, which check and route calls, and map foreign credentials to accounts.

A hook is a class with a name, options, and one base class for each of the things that it does::

    class NoShouting(Hook, CheckCall):
        name = "no-shouting"

        async def check_call(self, call):
            if any(text.isupper() for text in call.texts()):
                raise errors.InvalidValue("Do not shout")

`register_hooks` registers it, `[hooks.NAME]` in the configuration makes an instance, and a model names its instances in
`hooks`. The gateway bounds each run: its time, the runs at once, and what it may return. Sharp edge: an instance serves
many calls at once, on the event loop of the gateway.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from gateway.plugins.texts import change_texts, texts_of
from gateway.schemas.request_fields import RequestFields

if TYPE_CHECKING:
    from gateway.http_client.upstream import Upstream

#: Fields of a request that a hook cannot change.
FIXED = frozenset({"model", "stream"})
MOST_ANSWER = 1 << 20  # bytes of a whole answer that a hook gives or gets
_any = msgspec.json.Decoder()


class CheckedCall:
    """A call as hooks see it. Nothing that a hook does to it has an effect; only what the hook returns has one."""

    __slots__ = (
        "_content", "_decode", "_document", "_request", "account", "cache_control", "endpoint", "key_id", "model",
        "request_id", "session", "stream", "tags", "user",
    )  # fmt: skip

    def __init__(
        self,
        content: Callable[[], Any],
        decode: Callable[[], RequestFields],
        *,
        request_id: str,
        endpoint: str,
        account: str,
        key_id: str,
        user: str,
        model: str,
        session: str,
        stream: bool,
        tags: Mapping[str, str],
        cache_control: str = "",
    ) -> None:
        self._content, self._decode = content, decode
        self._document: Any = None
        self._request: RequestFields | None = None
        self.request_id = request_id
        self.endpoint = endpoint  # "chat", "responses", "messages", …: as in the metrics
        self.account = account
        self.key_id = key_id
        self.user = user  # the id of the user who has the key; empty for a service key
        self.model = model  # the public name
        self.session = session  # the id of the session; empty without one
        self.stream = stream  # whether the caller asks for a stream
        self.tags = tags
        self.cache_control = cache_control  # the header `Cache-Control` of the request; empty without one

    @property
    def document(self) -> dict[str, Any]:
        """The body of the request, decoded from JSON, in the API that the caller uses; of a form, its texts.

        It is a copy for this hook, which may change it and return it.
        """
        if self._document is None:
            self._document = self._content()
        found: dict[str, Any] = self._document
        return found

    @property
    def request(self) -> Any:
        """The request as providers get it: a `ChatRequest` for each API of chat models, an `EmbeddingRequest`, …"""
        if self._request is None:
            self._request = self._decode()
        return self._request

    def texts(self) -> Iterator[str]:
        """Every text of the request."""
        return texts_of(self.document)

    def with_texts(self, change: Callable[[str], str]) -> dict[str, Any] | None:
        """The body with each text replaced by `change(text)`, to be returned; None if nothing has changed."""
        found: dict[str, Any] | None = _with_texts(self.document, change, FIXED)
        return found


class CheckedAnswer:
    """An answer, or a part of a stream, as hooks see it."""

    __slots__ = ("_content", "_document", "before", "is_part", "kind")

    def __init__(self, content: Callable[[], Any], *, is_part: bool = False, kind: str = "", before: str = "") -> None:
        self._content = content
        self._document: Any = None
        self.is_part = is_part  # of a stream: it can be refused, and not replaced
        self.kind = kind  # of a part: "text", "reasoning" or "tool"
        self.before = before  # of a part: the end of the text before it, of the same kind and choice

    @property
    def document(self) -> Any:
        """The answer, decoded from JSON, in the API that the caller uses; a text for a part, or a transcript in text.

        It is a copy for this hook, which may change it and return it.
        """
        if self._document is None:
            self._document = self._content()
        return self._document

    def texts(self) -> Iterator[str]:
        """Every text of the answer."""
        found = self.document
        return iter([found]) if isinstance(found, str) else texts_of(found)

    def with_texts(self, change: Callable[[str], str]) -> Any:
        """The answer with each text replaced by `change(text)`, to be returned; None if nothing has changed."""
        found = self.document
        if isinstance(found, str):
            changed = change(found)
            return None if changed == found else changed
        return _with_texts(found, change, frozenset())


def _with_texts(document: Any, change: Callable[[str], str], but: frozenset[str]) -> Any:
    is_changed = False

    def changed(text: str) -> str:
        nonlocal is_changed
        found = change(text)
        is_changed = is_changed or found != text
        return found

    found = change_texts(document, changed, but=but)
    return found if is_changed else None


class WholeAnswer(Struct, frozen=True):
    """A whole answer in the form in which providers return it, as JSON: the same for every API of chat models.

    `content` is a `ChatCompletion` for chat, completions, Responses, Messages and Gemini, an `EmbeddingAnswer`, a
    `ModerationAnswer` or a `RerankAnswer`.
    """

    content: bytes

    @classmethod
    def of(cls, answer: Struct) -> WholeAnswer:
        """The answer of one of these classes; ValueError if it cannot be written as JSON, or is above `MOST_ANSWER`."""
        try:
            content = msgspec.json.encode(answer)
        except (TypeError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError, OverflowError) as error:
            raise ValueError(f"the answer cannot be written as JSON: {error}") from None
        if len(content) > MOST_ANSWER:
            raise ValueError(f"the answer has {len(content)} bytes, of at most {MOST_ANSWER}")
        return cls(content)


class Identity(Struct, frozen=True, kw_only=True):
    """Who presents a foreign credential. The gateway finds the key of this subject, or creates it."""

    account: str  # of the gateway; it must exist
    subject: str  # who it is, for as long as the account exists: `sub` of a token, for example
    user: str = ""  # the id of a user of the gateway who has the key; empty for none
    name: str = ""  # of a new key, for people; by default the hook's name and the subject
    expires: float | None = None  # of the credential, in Unix seconds; it is asked about again then at the latest
    #: Limits of a new key, by the names of `gateway keys create`: `rpm`, `tpm`, `concurrency`, `models`, … An operator
    #: may change them later, and the key keeps what the operator has set.
    limits: Mapping[str, Any] = {}


class RouteOption(Struct, frozen=True):
    """A candidate of a call: a target, with one of its credentials."""

    position: int  # in the order of the gateway, from 0
    provider: str  # the name under [providers]
    model: str  # the upstream's name
    public_model: str  # the model asked for, or a fallback
    latency: float  # seconds to the first chunk, smoothed; 0 before the first
    in_flight: int  # calls of this worker


class Hook:
    """Base of every hook: a name, typed options, and an HTTP client."""

    #: The value of `plugin` under [hooks.NAME].
    name: ClassVar[str] = ""
    #: The texts of the secrets in `options`, which no error may show; the gateway sets them.
    secret_texts: tuple[str, ...] = ()

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys this hook reads under [hooks.NAME], besides the gateway's own."""

    def __init__(self, options: Any, upstream: Upstream) -> None:
        self.options = options  # an instance of `Options`, decoded from the configuration
        self.upstream = upstream  # sends HTTP requests

    async def start(self) -> None:
        """Open resources; called once before the first call. An exception puts the hook out of service."""

    async def close(self) -> None:
        """Release the resources; called after the last call has ended."""


class CheckCall(abc.ABC):
    """The hook looks at each request before money is held for it."""

    @abc.abstractmethod
    async def check_call(self, call: CheckedCall) -> dict[str, Any] | None:
        """None to let the call pass, or another body for it; an error of `gateway.errors` below 500 refuses it."""


class CheckAnswer(abc.ABC):
    """The hook looks at each answer before the caller gets it; at streams, sentence by sentence."""

    @abc.abstractmethod
    async def check_answer(self, call: CheckedCall, answer: CheckedAnswer) -> Any:
        """None to let the answer pass, or another one; an error of `gateway.errors` below 500 refuses it."""


class Authenticate(abc.ABC):
    """The hook says who presents a credential that is no key of the gateway."""

    @abc.abstractmethod
    async def authenticate(self, credential: str) -> Identity | None:
        """The identity; None if the credential is not known to this hook, or is not valid."""


class Route(abc.ABC):
    """The hook orders the candidates of a call."""

    @abc.abstractmethod
    async def route(self, call: CheckedCall, options: Sequence[RouteOption]) -> Sequence[RouteOption]:
        """Some of the options, in the order in which they are to be tried; none of them: the gateway's own order."""


class AnswerCall(abc.ABC):
    """The hook may answer a call in place of a provider, when the money is held."""

    @abc.abstractmethod
    async def answer_call(self, call: CheckedCall) -> WholeAnswer | None:
        """The answer; None to ask a provider; an error of `gateway.errors` below 500 refuses the call."""


class KeepAnswer(abc.ABC):
    """The hook gets the answers of providers that were sent completely, such as one that may give them again."""

    @abc.abstractmethod
    async def keep_answer(self, call: CheckedCall, answer: WholeAnswer) -> None:
        """Called after the answer, also for a stream, whose chunks are joined. The caller does not wait for it."""


#: What a hook can do, by the name that `gateway plugins` and the metrics show.
HOOK_CAPABILITIES: Mapping[str, type] = {
    "check_call": CheckCall,
    "check_answer": CheckAnswer,
    "authenticate": Authenticate,
    "route": Route,
    "answer_call": AnswerCall,
    "keep_answer": KeepAnswer,
}


def hook_capabilities(hook: type[Hook]) -> list[str]:
    """What a hook class does."""
    return [name for name, kind in HOOK_CAPABILITIES.items() if issubclass(hook, kind)]
