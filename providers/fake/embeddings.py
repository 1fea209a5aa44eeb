"""Made-up vectors: one of length 1 per input, the same for the same text every time."""

from __future__ import annotations

import hashlib
import random
from math import sqrt
from typing import Any

from gateway import CompletionUsage, EmbeddingAnswer, EmbeddingRequest

from .script import Script

DIMENSIONS = 64


def embedding_answer(request: EmbeddingRequest, script: Script) -> EmbeddingAnswer:
    """A vector for each input; words, or token numbers, count as tokens."""
    length = request.dimensions or DIMENSIONS
    tokens = sum(len(entry.split()) or 1 if isinstance(entry, str) else len(entry) for entry in request.inputs)
    usage: Any = CompletionUsage(tokens, 0, tokens)
    wrong = script.wrong(tokens)
    if wrong is not None:
        usage = CompletionUsage(wrong, 0, wrong)
    return EmbeddingAnswer(
        [unit_vector(entry, length) for entry in request.inputs], None if script.usage == "none" else usage
    )


def unit_vector(entry: str | list[int], length: int) -> list[float]:
    """Numbers drawn by a generator that the input seeds, on the unit sphere."""
    source = random.Random(hashlib.sha256(str(entry).encode()).digest())  # noqa: S311 - the same each time is the point
    numbers = [source.gauss(0.0, 1.0) for _ in range(length)]
    size = sqrt(sum(number * number for number in numbers)) or 1.0
    return [number / size for number in numbers]
