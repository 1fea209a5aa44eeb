"""What the hooks of a call share: what they see of it, and what came of each, for the record of the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import structs

from gateway.errors import Unavailable
from gateway.hooks.runner import PASSED, REFUSED, HookFailed, HookRunner
from gateway.inference.services import Services
from gateway.ledger.api_key import ApiKey
from gateway.plugins.hook import CheckedCall, WholeAnswer
from gateway.schemas.duplicate_keys import Examined
from gateway.uploads.upload import UploadedForm

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class DecodingEndpoint(Protocol):
    """The part of an endpoint that a hooked call uses."""

    @property
    def name(self) -> str: ...

    def decode(self, body: Any, account: str, services: Services) -> Any:
        """The validated request."""

    def wants_stream(self, request: Any) -> bool:
        """Whether the answer is a stream."""


class Keeping(Protocol):
    """What is collected of an answer."""

    def whole(self) -> WholeAnswer | None:
        """The answer; None if it is not to be kept."""


class HookedCall:
    """A call whose model names hooks. `body` is what the endpoint decodes: after a replacement, the new one."""

    __slots__ = (
        "_endpoint",
        "_key",
        "_request_id",
        "_services",
        "answer",
        "body",
        "cache_control",
        "content",
        "keeping",
        "model",
        "outcomes",
        "session",
        "tags",
    )

    def __init__(
        self,
        endpoint: DecodingEndpoint,
        services: Services,
        *,
        request_id: str,
        key: ApiKey,
        model: str,
        body: Any,
        content: Any,
        tags: Mapping[str, str] | None,
        cache_control: str,
    ) -> None:
        self._endpoint, self._services, self._request_id, self._key = endpoint, services, request_id, key
        self.model, self.body, self.content, self.tags = model, body, content, tags or {}
        self.session, self.cache_control = "", cache_control
        self.answer: Any = None  # that a hook has given in place of a provider
        self.keeping: Keeping | None = None  # of the answer, for hooks that get it
        self.outcomes: dict[str, str] = {}  # by name: the last one that is not "passed"

    def view(self) -> CheckedCall:
        """The call for one run of one hook."""
        body, services, endpoint, key = self.body, self._services, self._endpoint, self._key
        return CheckedCall(
            lambda: document_of(body),
            lambda: endpoint.decode(body, key.account, services),
            request_id=self._request_id,
            endpoint=endpoint.name,
            account=key.account,
            key_id=key.id,
            user=key.user,
            model=self.model,
            session=self.session,
            stream=endpoint.wants_stream(self.content),
            tags=self.tags,
            cache_control=self.cache_control,
        )

    def note(self, runner: HookRunner, outcome: str) -> None:
        """Keep the outcome of a run."""
        if outcome != PASSED or runner.name not in self.outcomes:
            self.outcomes[runner.name] = outcome

    def refused(self, runner: HookRunner) -> None:
        """The hook has refused."""
        self.outcomes[runner.name] = REFUSED

    def failed(self, runner: HookRunner, failure: HookFailed) -> None:
        """The hook has failed; Unavailable if calls do not go on without it."""
        self.outcomes[runner.name] = failure.outcome
        if not runner.is_open:
            raise Unavailable("A check of this call could not be made; try again in a moment", detail=str(failure))


def document_of(body: Any) -> Any:
    """A copy of a body as hooks see it: the JSON document, or the texts of a form."""
    if isinstance(body, UploadedForm):
        found: dict[str, Any] = {}
        for name, text in body.form.texts:
            found.setdefault(name, []).append(text)
        return {name: texts[0] if len(texts) == 1 else texts for name, texts in found.items()}
    if isinstance(body, Examined) and body.fields is not None:
        return {name: _decode(raw) for name, raw in body.fields.items()}
    return _decode(body.content if isinstance(body, Examined) else body)


def body_of(document: Any, before: Any) -> Any:
    """The body with the content that a hook returned; ValueError if it cannot be one."""
    if not isinstance(document, dict):
        raise ValueError(f"a request is replaced by a dict, not by {type(document).__name__}")
    if isinstance(before, UploadedForm):
        texts = [(name, text) for name, value in document.items() for text in _texts(value)]
        return structs.replace(before, form=structs.replace(before.form, texts=texts))
    return encoded(document)


def encoded(document: Any) -> bytes:
    """JSON; ValueError for what cannot be written."""
    try:
        return _encode(document)
    except (TypeError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError, OverflowError) as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from None


def _texts(value: Any) -> list[str]:
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in found):
        raise ValueError("the fields of a form are texts")
    return found
