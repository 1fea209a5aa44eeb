"""What a plugin author imports. A whole provider, with the hook that registers it::

    from gateway import Chat, ChatChunk, Provider, hookimpl

    class EchoProvider(Provider, Chat):
        name = "echo"

        async def stream_chat(self, request, target):
            yield ChatChunk.text(request.messages[-1].content)
            yield ChatChunk.finish("stop")

    @hookimpl
    def register_providers(register):
        register(EchoProvider)

`gateway.errors` has the errors to raise, `gateway.testing` the conformance kit.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.billing.call_record import CallRecord
    from gateway.billing.usage import Usage, completion_usage
    from gateway.config.secret import Secret
    from gateway.http_client.forwarded_headers import dialect_headers
    from gateway.http_client.multipart import Multipart
    from gateway.http_client.timeouts import Timeouts
    from gateway.http_client.upstream import Answer, Upstream
    from gateway.plugins.hookspecs import hookimpl
    from gateway.plugins.provider import Chat, Embeddings, Images, Provider, Speech, Target, Transcription
    from gateway.plugins.text_fast_path import LanedStream, TextLane
    from gateway.schemas.chat_request import ChatRequest
    from gateway.schemas.chat_response import (
        ChatChunk,
        ChatCompletion,
        ChatMessage,
        Choice,
        ChunkChoice,
        CompletionTokensDetails,
        CompletionUsage,
        Delta,
        FunctionCall,
        PromptTokensDetails,
        ToolCall,
        ToolCallDelta,
    )
    from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest
    from gateway.schemas.images import GeneratedImage, ImageAnswer, ImageEvent, ImageRequest, ImageUsage
    from gateway.schemas.speech import SpeechChunk, SpeechRequest, SpeechUsage
    from gateway.schemas.transcription import (
        AudioFile,
        Segment,
        Transcript,
        TranscriptEvent,
        TranscriptionRequest,
        TranscriptUsage,
        Word,
    )
    from gateway.sse import Event, EventParser
    from gateway.version import __version__

__all__ = [
    "Answer",
    "AudioFile",
    "CallRecord",
    "Chat",
    "ChatChunk",
    "ChatCompletion",
    "ChatMessage",
    "ChatRequest",
    "Choice",
    "ChunkChoice",
    "CompletionTokensDetails",
    "CompletionUsage",
    "Delta",
    "EmbeddingAnswer",
    "EmbeddingRequest",
    "Embeddings",
    "Event",
    "EventParser",
    "FunctionCall",
    "GeneratedImage",
    "ImageAnswer",
    "ImageEvent",
    "ImageRequest",
    "ImageUsage",
    "Images",
    "LanedStream",
    "Multipart",
    "PromptTokensDetails",
    "Provider",
    "Secret",
    "Segment",
    "Speech",
    "SpeechChunk",
    "SpeechRequest",
    "SpeechUsage",
    "Target",
    "TextLane",
    "Timeouts",
    "ToolCall",
    "ToolCallDelta",
    "Transcript",
    "TranscriptEvent",
    "TranscriptUsage",
    "Transcription",
    "TranscriptionRequest",
    "Upstream",
    "Usage",
    "Word",
    "__version__",
    "completion_usage",
    "dialect_headers",
    "hookimpl",
]

# Where each name lives. They are imported when asked for, because every `gateway …` command passes through this
# file, and aiohttp alone takes 140 ms to import.
_HOME = {
    name: f"gateway.{module}"
    for module, names in {
        "billing.call_record": ("CallRecord",),
        "billing.usage": ("Usage", "completion_usage"),
        "config.secret": ("Secret",),
        "http_client.forwarded_headers": ("dialect_headers",),
        "http_client.multipart": ("Multipart",),
        "http_client.timeouts": ("Timeouts",),
        "http_client.upstream": ("Answer", "Upstream"),
        "plugins.hookspecs": ("hookimpl",),
        "plugins.provider": ("Chat", "Embeddings", "Images", "Provider", "Speech", "Target", "Transcription"),
        "plugins.text_fast_path": ("LanedStream", "TextLane"),
        "schemas.chat_request": ("ChatRequest",),
        "schemas.chat_response": (
            "ChatChunk",
            "ChatCompletion",
            "ChatMessage",
            "Choice",
            "ChunkChoice",
            "CompletionTokensDetails",
            "CompletionUsage",
            "Delta",
            "FunctionCall",
            "PromptTokensDetails",
            "ToolCall",
            "ToolCallDelta",
        ),
        "schemas.embeddings": ("EmbeddingAnswer", "EmbeddingRequest"),
        "schemas.images": ("GeneratedImage", "ImageAnswer", "ImageEvent", "ImageRequest", "ImageUsage"),
        "schemas.speech": ("SpeechChunk", "SpeechRequest", "SpeechUsage"),
        "schemas.transcription": (
            "AudioFile",
            "Segment",
            "Transcript",
            "TranscriptEvent",
            "TranscriptUsage",
            "TranscriptionRequest",
            "Word",
        ),
        "sse": ("Event", "EventParser"),
        "version": ("__version__",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value
