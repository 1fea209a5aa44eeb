"""Azure OpenAI: the same dialect as OpenAI's, at an endpoint of one's own, where models are deployments.

::

    [providers.azure]
    plugin = "azure"
    endpoint = "https://my-resource.openai.azure.com"
    api_key = "env:AZURE_OPENAI_API_KEY"

An upstream model is the name of a deployment. Without `api_version` the paths are those under `/openai/v1`; with a
date there they are the older ones, which name the deployment. Sharp edge: an Entra token lives for about an hour, so
`token` should be a file that somebody renews; the gateway reads it anew when it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from urllib.parse import quote, urlencode

from gateway import Provider, Secret, Target, Upstream, hookimpl

from .._shared.http_provider import checked_base_url
from ..openai.chat import OpenAIChat
from ..openai.embeddings import OpenAIEmbeddings
from ..openai.images import OpenAIImages
from ..openai.realtime import OpenAIRealtime
from ..openai.responses_fields import AZURE, NONE, Support
from ..openai.server import SharedOptions, quirks_of
from ..openai.speech import OpenAISpeech
from ..openai.transcription import OpenAITranscription


class AzureProvider(OpenAIEmbeddings, OpenAIImages, OpenAIRealtime, OpenAISpeech, OpenAITranscription, OpenAIChat):
    """One resource of Azure OpenAI and one credential."""

    name = "azure"
    limit_field = "max_completion_tokens"  # reasoning models refuse max_tokens

    class Options(SharedOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        endpoint: str
        token: Secret | None = None  # of Microsoft Entra ID, in place of api_key
        api_version: str = ""  # a date: the older paths, by deployment
        image_response_format: Literal["auto", "send", "omit"] = "omit"  # its image models refuse the field

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        if (options.api_key is None) == (options.token is None):
            raise ValueError("either an api_key or a token is needed")
        self.quirks = quirks_of(options).official
        self._by_deployment = options.api_version[:4].isdecimal()
        self._query = f"?{urlencode({'api-version': options.api_version})}" if options.api_version else ""
        super().__init__(options, upstream)
        if options.send_cache_key is None and not self.session_header:
            self.takes_cache_key = not self._by_deployment  # older versions of its API refuse the field

    @property
    def configured_url(self) -> str:
        endpoint, _ = checked_base_url(self.options.endpoint, option="endpoint")
        endpoint = endpoint.removesuffix("/v1").removesuffix("/openai")
        return f"{endpoint}/openai" if self._by_deployment else f"{endpoint}/openai/v1"

    @property
    def responses(self) -> Support:
        return NONE if self._by_deployment else AZURE

    def credentials(self) -> dict[str, str]:
        if self.options.token is not None:
            return {"Authorization": f"Bearer {self.reveal(self.options.token)}"}
        assert self.options.api_key is not None
        return {"api-key": self.reveal(self.options.api_key)}

    def url(self, path: str, target: Target) -> str:
        deployment = f"/deployments/{quote(target.model, safe='')}" if self._by_deployment else ""
        return f"{self.base_url}{deployment}{path}{self._query}"

    def realtime_url(self, target: Target) -> str:
        if not self._by_deployment:
            return super().realtime_url(target)
        query = urlencode({"api-version": self.options.api_version, "deployment": target.model})
        return f"{self.base_url}/realtime?{query}"


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `azure` plugin."""
    register(AzureProvider)
