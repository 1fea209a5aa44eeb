"""Where the Messages dialect is spoken: Anthropic's API, or Vertex AI (docs/providers/anthropic.md, "Vertex AI").

They differ in the URL, in the frame of the body, in what they take and in the form of errors. Vertex has the model in
the URL and the version in the body. Sharp edge: it refuses a request with a flag that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from gateway import AcceptedFields, Answer, NativeRequest
from gateway.plugins.upstream_errors import raise_for_status

from .._shared import google_errors
from .._shared.vertex_address import publisher_url
from . import cloud
from .accepted import ACCEPTED, VERTEX
from .models import OLD_VERSION, ModelTraits

Body = dict[str, Any]

#: Vertex's names of the API's versions, where they differ.
VERTEX_VERSIONS = {OLD_VERSION: "vertex-2023-10-16"}


class AnthropicService:
    """Anthropic's API, or a server of the same form."""

    accepted = ACCEPTED

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url.removesuffix('/v1')}/v1/messages"

    def url(self, model: str, *, stream: bool) -> str:
        """The same for every model."""
        return self._url

    def headers(self, traits: ModelTraits, version: str) -> dict[str, str]:
        """Those that only this service has. `version`: the caller's; one that the model demands goes before it."""
        return {"anthropic-version": version if version and traits.version == OLD_VERSION else traits.version}

    def body(self, fields: Body, model: str, traits: ModelTraits) -> Body:
        """The fields of a request with what this service wants beside them."""
        return {"model": model, **fields}

    def fitted(self, native: NativeRequest, accepted: AcceptedFields) -> NativeRequest:
        """The request as it was sent."""
        return native

    async def raise_for_status(self, answer: Answer, hidden: Sequence[str]) -> None:
        """Raise the typed error for a status other than 200 to 299."""
        await raise_for_status(answer, hidden)


class VertexService:
    """Claude on Vertex AI in one project and one location."""

    accepted = VERTEX

    def __init__(self, base_url: str, project: str, location: str) -> None:
        self._models = f"{publisher_url(base_url, project, location, 'anthropic')}/models"

    def url(self, model: str, *, stream: bool) -> str:
        """The method of the model."""
        return f"{self._models}/{quote(model, safe='@')}:{'streamRawPredict' if stream else 'rawPredict'}"

    def headers(self, traits: ModelTraits, version: str) -> dict[str, str]:
        """None: the version is in the body."""
        return {}

    def body(self, fields: Body, model: str, traits: ModelTraits) -> Body:
        """The fields of a request with the version."""
        return {"anthropic_version": VERTEX_VERSIONS.get(traits.version, traits.version), **fields}

    def fitted(self, native: NativeRequest, accepted: AcceptedFields) -> NativeRequest:
        """The request with the flags that Vertex knows, and without what needs a flag that is not accepted."""
        return cloud.fitted(native, accepted)

    async def raise_for_status(self, answer: Answer, hidden: Sequence[str]) -> None:
        """Raise the typed error for a status other than 200 to 299: errors of Google's form, or of Anthropic's."""
        await google_errors.raise_for_status(answer, hidden)
