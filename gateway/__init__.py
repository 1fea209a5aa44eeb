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
    from gateway.billing.call_record import CallRecord as CallRecord
    from gateway.billing.usage import Usage as Usage
    from gateway.billing.usage import completion_usage as completion_usage
    from gateway.config.secret import Secret as Secret
    from gateway.config.secret_headers import SecretHeaders as SecretHeaders
    from gateway.config.secret_headers import reveal_headers as reveal_headers
    from gateway.http_client.forwarded_headers import dialect_headers as dialect_headers
    from gateway.http_client.multipart import Multipart as Multipart
    from gateway.http_client.socket_refused import SocketRefused as SocketRefused
    from gateway.http_client.timeouts import Timeouts as Timeouts
    from gateway.http_client.upstream import Answer as Answer
    from gateway.http_client.upstream import Upstream as Upstream
    from gateway.http_client.upstream_socket import UpstreamSocket as UpstreamSocket
    from gateway.plugins.chunk_accumulator import fold_chat as fold_chat
    from gateway.plugins.current_call import CurrentCall as CurrentCall
    from gateway.plugins.current_call import current_call as current_call
    from gateway.plugins.hook import AnswerCall as AnswerCall
    from gateway.plugins.hook import Authenticate as Authenticate
    from gateway.plugins.hook import CheckAnswer as CheckAnswer
    from gateway.plugins.hook import CheckCall as CheckCall
    from gateway.plugins.hook import CheckedAnswer as CheckedAnswer
    from gateway.plugins.hook import CheckedCall as CheckedCall
    from gateway.plugins.hook import Hook as Hook
    from gateway.plugins.hook import Identity as Identity
    from gateway.plugins.hook import KeepAnswer as KeepAnswer
    from gateway.plugins.hook import Route as Route
    from gateway.plugins.hook import RouteOption as RouteOption
    from gateway.plugins.hook import WholeAnswer as WholeAnswer
    from gateway.plugins.hookspecs import hookimpl as hookimpl
    from gateway.plugins.model_client import GatewayModels as GatewayModels
    from gateway.plugins.model_client import ModelClient as ModelClient
    from gateway.plugins.model_list import ListedModel as ListedModel
    from gateway.plugins.model_list import ListLimits as ListLimits
    from gateway.plugins.model_list import ModelList as ModelList
    from gateway.plugins.model_list import openrouter_price as openrouter_price
    from gateway.plugins.provider import Chat as Chat
    from gateway.plugins.provider import Embeddings as Embeddings
    from gateway.plugins.provider import ImageEdit as ImageEdit
    from gateway.plugins.provider import Images as Images
    from gateway.plugins.provider import Moderation as Moderation
    from gateway.plugins.provider import Provider as Provider
    from gateway.plugins.provider import Realtime as Realtime
    from gateway.plugins.provider import Rerank as Rerank
    from gateway.plugins.provider import Speech as Speech
    from gateway.plugins.provider import Target as Target
    from gateway.plugins.provider import Transcription as Transcription
    from gateway.plugins.realtime_session import RealtimeSession as RealtimeSession
    from gateway.plugins.text_fast_path import LanedStream as LanedStream
    from gateway.plugins.text_fast_path import TextLane as TextLane
    from gateway.plugins.upstream_errors import error_body as error_body
    from gateway.plugins.upstream_errors import error_of_document as error_of_document
    from gateway.plugins.upstream_errors import raise_for_status as raise_for_status
    from gateway.schemas.chat_messages import AllowedChoice as AllowedChoice
    from gateway.schemas.chat_messages import AllowedTools as AllowedTools
    from gateway.schemas.chat_messages import AssistantMessage as AssistantMessage
    from gateway.schemas.chat_messages import AudioPart as AudioPart
    from gateway.schemas.chat_messages import AudioReference as AudioReference
    from gateway.schemas.chat_messages import CustomChoice as CustomChoice
    from gateway.schemas.chat_messages import CustomDefinition as CustomDefinition
    from gateway.schemas.chat_messages import CustomInput as CustomInput
    from gateway.schemas.chat_messages import CustomTool as CustomTool
    from gateway.schemas.chat_messages import CustomToolCall as CustomToolCall
    from gateway.schemas.chat_messages import DeveloperMessage as DeveloperMessage
    from gateway.schemas.chat_messages import FilePart as FilePart
    from gateway.schemas.chat_messages import FunctionArguments as FunctionArguments
    from gateway.schemas.chat_messages import FunctionChoice as FunctionChoice
    from gateway.schemas.chat_messages import FunctionDefinition as FunctionDefinition
    from gateway.schemas.chat_messages import FunctionMessage as FunctionMessage
    from gateway.schemas.chat_messages import FunctionTool as FunctionTool
    from gateway.schemas.chat_messages import FunctionToolCall as FunctionToolCall
    from gateway.schemas.chat_messages import ImagePart as ImagePart
    from gateway.schemas.chat_messages import ImageURL as ImageURL
    from gateway.schemas.chat_messages import InputAudio as InputAudio
    from gateway.schemas.chat_messages import RefusalPart as RefusalPart
    from gateway.schemas.chat_messages import SystemMessage as SystemMessage
    from gateway.schemas.chat_messages import TextPart as TextPart
    from gateway.schemas.chat_messages import ToolMessage as ToolMessage
    from gateway.schemas.chat_messages import UserMessage as UserMessage
    from gateway.schemas.chat_request import ChatRequest as ChatRequest
    from gateway.schemas.chat_response import ChatChunk as ChatChunk
    from gateway.schemas.chat_response import ChatCompletion as ChatCompletion
    from gateway.schemas.chat_response import ChatMessage as ChatMessage
    from gateway.schemas.chat_response import Choice as Choice
    from gateway.schemas.chat_response import ChunkChoice as ChunkChoice
    from gateway.schemas.chat_response import CompletionTokensDetails as CompletionTokensDetails
    from gateway.schemas.chat_response import CompletionUsage as CompletionUsage
    from gateway.schemas.chat_response import Delta as Delta
    from gateway.schemas.chat_response import FunctionCall as FunctionCall
    from gateway.schemas.chat_response import PromptTokensDetails as PromptTokensDetails
    from gateway.schemas.chat_response import ToolCall as ToolCall
    from gateway.schemas.chat_response import ToolCallDelta as ToolCallDelta
    from gateway.schemas.embeddings import EmbeddingAnswer as EmbeddingAnswer
    from gateway.schemas.embeddings import EmbeddingRequest as EmbeddingRequest
    from gateway.schemas.images import GeneratedImage as GeneratedImage
    from gateway.schemas.images import ImageAnswer as ImageAnswer
    from gateway.schemas.images import ImageEditRequest as ImageEditRequest
    from gateway.schemas.images import ImageEvent as ImageEvent
    from gateway.schemas.images import ImageFile as ImageFile
    from gateway.schemas.images import ImageRequest as ImageRequest
    from gateway.schemas.images import ImageUsage as ImageUsage
    from gateway.schemas.native_request import AcceptedFields as AcceptedFields
    from gateway.schemas.native_request import NativeChunk as NativeChunk
    from gateway.schemas.native_request import NativeCompletion as NativeCompletion
    from gateway.schemas.native_request import NativeRequest as NativeRequest
    from gateway.schemas.realtime.request import RealtimeRequest as RealtimeRequest
    from gateway.schemas.scoring.moderation import ModerationAnswer as ModerationAnswer
    from gateway.schemas.scoring.moderation import ModerationRequest as ModerationRequest
    from gateway.schemas.scoring.moderation import ModerationResult as ModerationResult
    from gateway.schemas.scoring.rerank import RankedDocument as RankedDocument
    from gateway.schemas.scoring.rerank import RerankAnswer as RerankAnswer
    from gateway.schemas.scoring.rerank import RerankRequest as RerankRequest
    from gateway.schemas.speech import SpeechChunk as SpeechChunk
    from gateway.schemas.speech import SpeechRequest as SpeechRequest
    from gateway.schemas.speech import SpeechUsage as SpeechUsage
    from gateway.schemas.transcription import AudioFile as AudioFile
    from gateway.schemas.transcription import Segment as Segment
    from gateway.schemas.transcription import Transcript as Transcript
    from gateway.schemas.transcription import TranscriptEvent as TranscriptEvent
    from gateway.schemas.transcription import TranscriptionRequest as TranscriptionRequest
    from gateway.schemas.transcription import TranscriptUsage as TranscriptUsage
    from gateway.schemas.transcription import Word as Word
    from gateway.sse import Event as Event
    from gateway.sse import EventParser as EventParser
    from gateway.uploads.audio_format import sound_format as sound_format
    from gateway.version import __version__ as __version__

# Where each name lives. They are imported when asked for, because every `gateway …` command passes through this
# file, and aiohttp alone takes 140 ms to import.
_HOME = {
    name: f"gateway.{module}"
    for module, names in {
        "billing.call_record": ("CallRecord",),
        "billing.usage": ("Usage", "completion_usage"),
        "config.secret": ("Secret",),
        "config.secret_headers": ("SecretHeaders", "reveal_headers"),
        "http_client.forwarded_headers": ("dialect_headers",),
        "http_client.multipart": ("Multipart",),
        "http_client.socket_refused": ("SocketRefused",),
        "http_client.timeouts": ("Timeouts",),
        "http_client.upstream": ("Answer", "Upstream"),
        "http_client.upstream_socket": ("UpstreamSocket",),
        "plugins.chunk_accumulator": ("fold_chat",),
        "plugins.current_call": ("CurrentCall", "current_call"),
        "plugins.hook": (
            "AnswerCall",
            "Authenticate",
            "CheckAnswer",
            "CheckCall",
            "CheckedAnswer",
            "CheckedCall",
            "Hook",
            "Identity",
            "KeepAnswer",
            "Route",
            "RouteOption",
            "WholeAnswer",
        ),
        "plugins.hookspecs": ("hookimpl",),
        "plugins.model_client": ("GatewayModels", "ModelClient"),
        "plugins.model_list": ("ListLimits", "ListedModel", "ModelList", "openrouter_price"),
        "plugins.provider": (
            "Chat",
            "Embeddings",
            "ImageEdit",
            "Images",
            "Moderation",
            "Provider",
            "Realtime",
            "Rerank",
            "Speech",
            "Target",
            "Transcription",
        ),
        "plugins.realtime_session": ("RealtimeSession",),
        "plugins.text_fast_path": ("LanedStream", "TextLane"),
        "plugins.upstream_errors": ("error_body", "error_of_document", "raise_for_status"),
        "schemas.chat_messages": (
            "AllowedChoice",
            "AllowedTools",
            "AssistantMessage",
            "AudioPart",
            "AudioReference",
            "CustomChoice",
            "CustomDefinition",
            "CustomInput",
            "CustomTool",
            "CustomToolCall",
            "DeveloperMessage",
            "FilePart",
            "FunctionArguments",
            "FunctionChoice",
            "FunctionDefinition",
            "FunctionMessage",
            "FunctionTool",
            "FunctionToolCall",
            "ImagePart",
            "ImageURL",
            "InputAudio",
            "RefusalPart",
            "SystemMessage",
            "TextPart",
            "ToolMessage",
            "UserMessage",
        ),
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
        "schemas.images": (
            "GeneratedImage",
            "ImageAnswer",
            "ImageEditRequest",
            "ImageEvent",
            "ImageFile",
            "ImageRequest",
            "ImageUsage",
        ),
        "schemas.realtime.request": ("RealtimeRequest",),
        "schemas.scoring.moderation": ("ModerationAnswer", "ModerationRequest", "ModerationResult"),
        "schemas.native_request": ("AcceptedFields", "NativeChunk", "NativeCompletion", "NativeRequest"),
        "schemas.scoring.rerank": ("RankedDocument", "RerankAnswer", "RerankRequest"),
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
        "uploads.audio_format": ("sound_format",),
        "version": ("__version__",),
    }.items()
    for name in names
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    """Every public name, also those that nobody has asked for yet."""
    return sorted({*globals(), *_HOME})
