"""Gemini's `usageMetadata` as the gateway's usage, for every endpoint (docs/providers/gemini.md).

Thoughts are counted beside the visible answer, and what tools added beside the prompt: both are added here. Counts of a
stream are totals so far. Sharp edge: None means that there is nothing that could be right, and then the gateway
estimates.
"""

from __future__ import annotations

from typing import Any

from gateway import CompletionUsage, ImageUsage, SpeechUsage, TranscriptUsage, completion_usage
from gateway.schemas.images import TokenKinds


def read_usage(metadata: Any, *, searches: int = 0) -> CompletionUsage | None:
    """The usage in `usageMetadata`, with the number of searches that were seen in the answer."""
    if not isinstance(metadata, dict):
        return None
    into = _by_modality(metadata.get("promptTokensDetails"))
    out = _by_modality(metadata.get("candidatesTokensDetails"))
    cached = _by_modality(metadata.get("cacheTokensDetails"))
    return completion_usage(
        {
            "prompt_tokens": _sum(metadata.get("promptTokenCount"), metadata.get("toolUsePromptTokenCount")),
            "completion_tokens": _sum(metadata.get("candidatesTokenCount"), metadata.get("thoughtsTokenCount")),
            "prompt_tokens_details": {
                "cached_tokens": metadata.get("cachedContentTokenCount"),
                "audio_tokens": into.get("AUDIO"),
                "image_tokens": into.get("IMAGE"),
                "text_tokens": into.get("TEXT"),
            },
            "completion_tokens_details": {
                "reasoning_tokens": metadata.get("thoughtsTokenCount"),
                "audio_tokens": out.get("AUDIO"),
                "image_tokens": out.get("IMAGE"),
                "text_tokens": out.get("TEXT"),
            },
            "cached_audio_tokens": cached.get("AUDIO"),
            "web_searches": searches,
        }
    )


def counts_output(metadata: Any) -> bool:
    """Whether the counts of a frame say anything about the answer, and not of the prompt alone."""
    return isinstance(metadata, dict) and ("candidatesTokenCount" in metadata or "thoughtsTokenCount" in metadata)


def image_usage(metadata: Any) -> ImageUsage | None:
    """The same in the words of the image endpoint; thoughts are text."""
    usage = read_usage(metadata)
    if usage is None:
        return None
    prompt = _known(usage.prompt_tokens_details.image_tokens)
    made = _by_modality(metadata.get("candidatesTokensDetails")).get("IMAGE")
    made = min(made, usage.completion_tokens) if isinstance(made, int) and made > 0 else 0
    return ImageUsage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        TokenKinds(usage.prompt_tokens - prompt, prompt),
        TokenKinds(usage.completion_tokens - made, made),
    )


def speech_usage(metadata: Any) -> SpeechUsage | None:
    """The same in the words of the speech endpoint."""
    usage = read_usage(metadata)
    if usage is None:
        return None
    return SpeechUsage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)


def transcript_usage(metadata: Any) -> TranscriptUsage | None:
    """The same in the words of the transcription endpoint."""
    usage = read_usage(metadata)
    if usage is None:
        return None
    return TranscriptUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        audio_tokens=usage.prompt_tokens_details.audio_tokens,
    )


def _by_modality(details: Any) -> dict[str, Any]:
    """Token counts by modality."""
    return {
        str(entry.get("modality")): entry.get("tokenCount", 0)
        for entry in (details if isinstance(details, list) else ())
        if isinstance(entry, dict)
    }


def _sum(one: Any, other: Any) -> Any:
    """Both counts together; what is no count is handed on, to be refused with the rest."""
    counts = [count for count in (one, other) if count is not None]
    wrong = [count for count in counts if isinstance(count, bool) or not isinstance(count, int) or count < 0]
    return wrong[0] if wrong else sum(counts)


def _known(count: Any) -> int:
    return count if isinstance(count, int) else 0
