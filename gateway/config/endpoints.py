"""The endpoints that a model can have, what prices charge for at each, and the endpoint that a model's name says.

The name is asked for lists of models that say nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

Endpoint = Literal["chat", "embeddings", "images", "moderation", "realtime", "rerank", "speech", "transcription"]

#: What a price charges for at each endpoint; one of them must be there, or the endpoint would be free by oversight.
UNITS: Mapping[Endpoint, frozenset[str]] = {
    "chat": frozenset({"input", "output", "audio_output"}),
    "embeddings": frozenset({"input"}),
    "images": frozenset({"per_image", "image_output", "output"}),
    "moderation": frozenset(),
    "realtime": frozenset({"input", "output", "audio_input", "audio_output"}),
    "rerank": frozenset({"input", "per_search_unit"}),
    "speech": frozenset({"per_character", "per_second_out", "audio_output", "output"}),
    "transcription": frozenset({"per_second_in", "audio_input", "input", "output"}),
}
ANY_CALL = frozenset({"per_request", "minimum"})
UNBILLED = frozenset({"moderation"})  # endpoints that cost nothing unless a price charges for each call

# Families of embedding models; each stands at the beginning of a part of the name.
_EMBEDDINGS = re.compile(
    r"embed|(?:^|[/_-])(?:bge|gte|gtr|e5|minilm|all-minilm|all-mpnet|paraphrase)(?![a-z])", re.IGNORECASE
)
_RERANKER = re.compile(r"rerank", re.IGNORECASE)
_OTHERS: Final[tuple[tuple[Endpoint, re.Pattern[str]], ...]] = (
    ("realtime", re.compile(r"(?:^|[/_-])realtime(?![a-z])", re.IGNORECASE)),
    ("moderation", re.compile(r"moderation", re.IGNORECASE)),
    ("rerank", _RERANKER),
    ("transcription", re.compile(r"whisper|transcribe", re.IGNORECASE)),
    ("speech", re.compile(r"(?:^|[/_-])tts(?![a-z])", re.IGNORECASE)),
    ("images", re.compile(r"dall-e|(?:^|[/_-])(?:gpt-image|imagen|flux|stable-diffusion)(?![a-z])", re.IGNORECASE)),
)


def makes_embeddings(name: str) -> bool:
    """Whether a model of this name makes embeddings."""
    return bool(_EMBEDDINGS.search(name)) and not _RERANKER.search(name)


def endpoint_of_name(name: str) -> Endpoint:
    """What a model of this name serves; chat if it does not say it."""
    if makes_embeddings(name):
        return "embeddings"
    return next((endpoint for endpoint, words in _OTHERS if words.search(name)), "chat")
