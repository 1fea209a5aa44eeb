"""The provider under test: a live instance with its way out, what all cases say about an answer, and what was found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET

from gateway.config.secret import Secret
from gateway.errors import GatewayError, RequestTooLarge, UpstreamError
from gateway.http_client.upstream import Upstream
from gateway.plugins.model_list import ModelList
from gateway.plugins.provider import Chat, Embeddings, Images, Provider, Speech, Target, Transcription
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import FINISH_REASONS, ChatChunk, ChatMessage, CompletionUsage, Delta
from gateway.testing.fake_upstream import FakeUpstream, Reply, Seen

VendorRefusal = Callable[[int, str], Reply]
VendorEndings = Mapping[str, Callable[[Seen], Reply]]
MAX_TOKENS = 1_000_000_000


class NotConcerned(Exception):
    """Raised by a case that has nothing to check of this provider; the message says why.

    Without a message, the case is of something that the provider may have or not, such as a capability: no report names
    it.
    """


class CheckReport(list[str]):
    """The names of the cases that passed, in the order in which they ran, and what was not checked."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped: dict[str, str] = {}  # names of the cases that do not concern the provider, with the reason
        self.notes: list[str] = []  # what may be right or wrong, which only the author can tell


class Subject:
    """A started provider; an async context manager that closes it again."""

    def __init__(
        self,
        provider: type[Provider],
        options: Any,
        target: Target,
        *,
        upstream: FakeUpstream | None = None,
        refusal: VendorRefusal | None = None,
        endings: VendorEndings | None = None,
        sends_counts: bool = True,
    ) -> None:
        self.target = target
        self.options = options
        self.refusal = refusal  # makes an error of the vendor from a status and a text
        self.endings = endings  # the vendor's answers that end for a reason, by the reason of the wire
        self.sends_counts = sends_counts  # the vendor's answers have usage
        self.notes: list[str] = []  # of the case
        self._fake = upstream
        self._link = Upstream()
        self.provider = provider(options, self._link)
        # The provider by capability; a case asks only for one that the class has.
        self.chat = cast(Chat, self.provider)
        self.embeddings = cast(Embeddings, self.provider)
        self.images = cast(Images, self.provider)
        self.speech = cast(Speech, self.provider)
        self.transcription = cast(Transcription, self.provider)
        self.model_list = cast(ModelList, self.provider)

    def fresh(self) -> Subject:
        """Another instance with the same options, which knows nothing of this one's calls."""
        return Subject(
            type(self.provider),
            self.options,
            self.target,
            upstream=self._fake,
            refusal=self.refusal,
            endings=self.endings,
            sends_counts=self.sends_counts,
        )

    @property
    def has_upstream(self) -> bool:
        """Whether it talks to a `FakeUpstream`."""
        return self._fake is not None

    @property
    def fake(self) -> FakeUpstream:
        """The upstream it talks to."""
        assert self._fake is not None, "this case needs a FakeUpstream"
        return self._fake

    @property
    def secrets(self) -> list[str]:
        """The texts of every secret in its options."""
        values = msgspec.structs.asdict(self.options).values()
        return [value.reveal() for value in values if isinstance(value, Secret)]

    async def stream(self, request: ChatRequest, *, target: Target | None = None) -> list[ChatChunk]:
        """All chunks of one stream."""
        return [chunk async for chunk in self.chat.stream_chat(request, target or self.target)]

    async def __aenter__(self) -> Subject:
        await self.provider.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.provider.close()
        finally:
            await self._link.close()
            if self._fake is not None:
                self._fake.tamper = None


Case = Callable[[Subject], Awaitable[None]]


def assert_sound_stream(chunks: Sequence[ChatChunk]) -> None:
    """One finish per choice, nothing said after it, something said before, and possible usage."""
    assert chunks, "no chunk came"
    ended: set[int] = set()
    begun: set[int] = set()
    spoke = False
    for chunk in chunks:
        assert isinstance(chunk, ChatChunk), f"yielded {chunk!r} instead of a ChatChunk"
        msgspec.json.encode(chunk)
        if chunk.usage is not UNSET and chunk.usage is not None:
            assert_sane_usage(chunk.usage)
        for part in chunk.choices:
            delta = part.delta
            says = bool(delta.content or delta.tool_calls or delta.refusal or delta.function_call or delta.audio)
            assert not (delta.continues and part.index in ended), f"choice {part.index} went on after its finish"
            begun.add(part.index)
            spoke = spoke or says
            if part.finish_reason is not None:
                assert part.index not in ended, f"choice {part.index} finished twice"
                assert part.finish_reason in FINISH_REASONS, f"finish reason {part.finish_reason!r} is not the wire's"
                ended.add(part.index)
    assert ended == begun, f"choices {sorted(begun - ended)} never finished"
    assert begun == set(range(len(begun))), f"choices are numbered {sorted(begun)}, not from 0 without gaps"
    assert spoke, "the stream said nothing: no text, no tool call, no refusal"


def assert_texts(said: Delta | ChatMessage, what: str) -> None:
    """Texts are of the wire's type. JSON writes bytes as base64, so the caller would get them without an error."""
    texts: list[tuple[str, object]] = [
        (name, getattr(said, name)) for name in ("content", "refusal", "reasoning_content")
    ]
    for call in said.tool_calls or ():
        texts.append(("the id of a tool call", call.id))
        if call.function:
            texts += [("the name of a tool call", call.function.name), ("its arguments", call.function.arguments)]
    for name, text in texts:
        allowed = text is None or text is UNSET or isinstance(text, str)
        assert allowed, f"{what}: {name} is {type(text).__name__}, not str: {text!r}"


def assert_sane_usage(usage: CompletionUsage) -> None:
    """Counts that one call could have."""
    assert isinstance(usage, CompletionUsage), f"usage is {usage!r} instead of a CompletionUsage"
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        count = getattr(usage, name)
        assert type(count) is int and 0 <= count <= MAX_TOKENS, f"usage.{name} is {count!r}"
    total = usage.prompt_tokens + usage.completion_tokens
    assert usage.total_tokens == total, f"usage.total_tokens is {usage.total_tokens}, the sum of its parts {total}"
    cached = usage.prompt_tokens_details.cached_tokens
    assert 0 <= cached <= usage.prompt_tokens, f"{cached} cached tokens in a prompt of {usage.prompt_tokens}"


def assert_upstream_error(error: BaseException, secrets: Sequence[str]) -> None:
    """A typed error that shows neither secret nor address."""
    typed = isinstance(error, UpstreamError | RequestTooLarge) or (
        isinstance(error, GatewayError) and error.status == 400
    )
    assert typed, f"raised {type(error).__name__} instead of an Upstream* error: {error}"
    assert isinstance(error, GatewayError)
    shown = f"{error} {error.message} {error.param} {error.detail} {error.body().decode()}"
    for secret in secrets:
        assert secret not in shown, f"{type(error).__name__} shows a secret"
    public = f"{error} {error.body().decode()}"
    assert "://" not in public and "127.0.0.1" not in public, f"{type(error).__name__} shows an address: {public}"
