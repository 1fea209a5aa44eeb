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
    "Answer": "gateway.http_client.upstream",
    "AudioFile": "gateway.schemas.transcription",
    "CallRecord": "gateway.billing.call_record",
    "Chat": "gateway.plugins.provider",
    "ChatChunk": "gateway.schemas.chat_response",
    "ChatCompletion": "gateway.schemas.chat_response",
    "ChatMessage": "gateway.schemas.chat_response",
    "ChatRequest": "gateway.schemas.chat_request",
    "Choice": "gateway.schemas.chat_response",
    "ChunkChoice": "gateway.schemas.chat_response",
    "CompletionTokensDetails": "gateway.schemas.chat_response",
    "CompletionUsage": "gateway.schemas.chat_response",
    "Delta": "gateway.schemas.chat_response",
    "EmbeddingAnswer": "gateway.schemas.embeddings",
    "EmbeddingRequest": "gateway.schemas.embeddings",
    "Embeddings": "gateway.plugins.provider",
    "Event": "gateway.sse",
    "EventParser": "gateway.sse",
    "FunctionCall": "gateway.schemas.chat_response",
    "GeneratedImage": "gateway.schemas.images",
    "ImageAnswer": "gateway.schemas.images",
    "ImageEvent": "gateway.schemas.images",
    "ImageRequest": "gateway.schemas.images",
    "ImageUsage": "gateway.schemas.images",
    "Images": "gateway.plugins.provider",
    "LanedStream": "gateway.plugins.text_fast_path",
    "Multipart": "gateway.http_client.multipart",
    "PromptTokensDetails": "gateway.schemas.chat_response",
    "Provider": "gateway.plugins.provider",
    "Secret": "gateway.config.secret",
    "Segment": "gateway.schemas.transcription",
    "Speech": "gateway.plugins.provider",
    "SpeechChunk": "gateway.schemas.speech",
    "SpeechRequest": "gateway.schemas.speech",
    "SpeechUsage": "gateway.schemas.speech",
    "Target": "gateway.plugins.provider",
    "TextLane": "gateway.plugins.text_fast_path",
    "Timeouts": "gateway.http_client.timeouts",
    "ToolCall": "gateway.schemas.chat_response",
    "ToolCallDelta": "gateway.schemas.chat_response",
    "Transcript": "gateway.schemas.transcription",
    "TranscriptEvent": "gateway.schemas.transcription",
    "TranscriptUsage": "gateway.schemas.transcription",
    "Transcription": "gateway.plugins.provider",
    "TranscriptionRequest": "gateway.schemas.transcription",
    "Upstream": "gateway.http_client.upstream",
    "Usage": "gateway.billing.usage",
    "Word": "gateway.schemas.transcription",
    "__version__": "gateway.version",
    "completion_usage": "gateway.billing.usage",
    "dialect_headers": "gateway.http_client.forwarded_headers",
    "hookimpl": "gateway.plugins.hookspecs",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value
