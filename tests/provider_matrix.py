"""The matrix of docs/providers/matrix.md, made from the code: `python -m tests.provider_matrix` writes it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gateway.config.settings import PluginSettings
from gateway.plugins.loader import load_plugins
from gateway.plugins.model_list import ModelList
from gateway.plugins.provider import CAPABILITIES, Provider, Transcription, capabilities_of
from gateway.routing.request_adaptation import HONOURED, NAMED_HINTS
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.embeddings import EmbeddingRequest
from gateway.schemas.images import ImageEditRequest, ImageRequest
from gateway.schemas.realtime.request import RealtimeRequest
from gateway.schemas.request_fields import FIELD_CLASSES
from gateway.schemas.scoring.moderation import ModerationRequest
from gateway.schemas.scoring.rerank import RerankRequest
from gateway.schemas.speech import SpeechRequest
from gateway.schemas.transcription import TranscriptionRequest

PAGE = Path(__file__).parent.parent / "docs" / "providers" / "matrix.md"

REQUESTS: Mapping[str, Any] = {
    "chat": ChatRequest,
    "embeddings": EmbeddingRequest,
    "images": ImageRequest,
    "moderation": ModerationRequest,
    "realtime": RealtimeRequest,
    "rerank": RerankRequest,
    "speech": SpeechRequest,
    "transcription": TranscriptionRequest,
    "image_edit": ImageEditRequest,
}
MEDIA = ("image_url", "input_audio", "file")  # parts of a chat message that are more than text
REFUSAL = {"semantic": "400", "sampling": "dropped, named", "hint": "dropped"}

HEAD = """# What each provider can do

This page is made from the code by `python -m tests.provider_matrix`, and a test holds it to the code.

The class of a field decides what happens if the chosen provider cannot honour it: a *semantic* one would change the
meaning of the answer and is refused with 400 `unsupported_parameter`; a *sampling* one is dropped and named in
`x-gateway-dropped-params`; a *hint* is dropped silently, except that `prompt_cache_options` is named. A
`service_tier` for which the model's price has no factor is dropped and named for every provider. If a model has several
targets, only those that can honour the request are tried. A model's `unsupported_params` drops sampling fields that its
provider supports but the model does not. Some values are refused in addition to this table, such as an image URL if the
dialect does not accept one.

*Translates*: a model of transcriptions may also serve `POST /v1/audio/translations`.

*Lists models*: the provider can be asked for the models of its server, with `discover = true`.
"""


def built_in_providers() -> dict[str, type[Provider]]:
    """Every provider that comes with the gateway, by name; except the fake one."""
    plugins = load_plugins(PluginSettings())
    ours = {name for report in plugins.reports if report.source == "built-in" for name in report.providers}
    return {name: kind for name, kind in sorted(plugins.providers.items()) if name in ours and name != "fake"}


def page() -> str:
    """The whole page."""
    providers = built_in_providers()
    parts = [
        HEAD,
        "## Capabilities\n",
        _table(["provider", *CAPABILITIES, "translates", "lists models"], _capabilities(providers)),
    ]
    for capability in CAPABILITIES:
        able = {name: kind for name, kind in providers.items() if capability in capabilities_of(kind)}
        rows = list(_fields(capability, able))
        if rows:
            parts += [f"## Fields of {capability}\n", _table(["field", "class", *able], rows)]
    return "\n".join(parts)


def _capabilities(providers: Mapping[str, type[Provider]]) -> Iterable[list[str]]:
    for name, kind in providers.items():
        have = capabilities_of(kind)
        lists = "yes" if issubclass(kind, ModelList) else "–"
        own = issubclass(kind, Transcription) and kind.can_translate is not Transcription.can_translate
        translates = "yes" if own else "–"
        yield [f"`{name}`", *("yes" if capability in have else "–" for capability in CAPABILITIES), translates, lists]


def _fields(capability: str, providers: Mapping[str, type[Provider]]) -> Iterable[list[str]]:
    honoured = HONOURED[CAPABILITIES[capability]]
    parts = dict.fromkeys(MEDIA, "semantic") if capability == "chat" else {}
    classes = {**REQUESTS[capability].field_classes, **parts}
    for field, kind in sorted(classes.items(), key=lambda item: FIELD_CLASSES.index(item[1])):
        if kind == "core":
            continue  # every provider honours those, or it has not the capability
        fields = (honoured(provider) for provider in providers.values())  # type: ignore[arg-type]  # a class attribute
        lacking = REFUSAL["sampling" if field in NAMED_HINTS else kind]
        yield [f"`{field}`", kind, *("yes" if known is None or field in known else lacking for known in fields)]


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
