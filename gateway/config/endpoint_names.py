"""The endpoint of a model as its name says it, for lists of models that say nothing else."""

from __future__ import annotations

import re
from typing import Final

from gateway.config.settings import Endpoint

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
