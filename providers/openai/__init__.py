"""Every server that speaks OpenAI's dialect: OpenAI itself, DeepSeek, Groq, Mistral, xAI, Together, OpenRouter, vLLM, …

Such a vendor needs configuration, not code::

    [providers.groq]
    plugin = "openai"
    preset = "groq"
    api_key = "env:GROQ_API_KEY"

The caller's fields are forwarded as they were sent; answers are read into the gateway's own shapes, so that a vendor's
peculiarities and anything unknown end here. What a vendor wants said otherwise is a row of `presets`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gateway import Provider, Upstream, hookimpl

from .chat import OpenAIChat
from .embeddings import OpenAIEmbeddings
from .image_edits import OpenAIImageEdit
from .images import OpenAIImages
from .model_list import OpenAIModelList
from .moderation import OpenAIModeration
from .realtime import OpenAIRealtime
from .rerank import OpenAIRerank
from .responses_fields import NONE, OPENAI, Support
from .responses_fields import PRESETS as RESPONSES
from .server import SharedOptions, quirks_of
from .speech import OpenAISpeech
from .transcription import OpenAITranscription

Preset = Literal[
    "mistral", "deepseek", "groq", "xai", "together", "openrouter", "vllm", "llamacpp", "ollama", "jina", "voyage"
]


class OpenAIProvider(
    OpenAIEmbeddings,
    OpenAIImages,
    OpenAIImageEdit,
    OpenAIModeration,
    OpenAIRealtime,
    OpenAIRerank,
    OpenAISpeech,
    OpenAITranscription,
    OpenAIModelList,
    OpenAIChat,
):
    """One OpenAI-compatible server and one credential."""

    name = "openai"

    class Options(SharedOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        preset: Preset | None = None
        base_url: str = ""  # empty: the preset's, or OpenAI's own
        organization: str = ""
        project: str = ""

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        self.quirks = quirks_of(options, options.preset)
        self.preset = options.preset
        super().__init__(options, upstream)

    @property
    def configured_url(self) -> str:
        return self.options.base_url or self.quirks.base_url

    @property
    def responses(self) -> Support:
        if self.options.preset is not None:
            return RESPONSES.get(self.options.preset, NONE)
        return OPENAI if self.official else NONE

    def credentials(self) -> dict[str, str]:
        headers = super().credentials()
        if self.options.organization:
            headers["OpenAI-Organization"] = self.options.organization
        if self.options.project:
            headers["OpenAI-Project"] = self.options.project
        return headers


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `openai` plugin."""
    register(OpenAIProvider)
