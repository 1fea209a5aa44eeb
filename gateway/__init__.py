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
    from gateway.hookspecs import hookimpl
    from gateway.provider import Chat, Provider, Target, Timeouts
    from gateway.receipt import CallRecord
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
    from gateway.secret import Secret
    from gateway.sse import Event, EventParser
    from gateway.transport.multipart import Multipart
    from gateway.transport.upstream import Answer, Upstream
    from gateway.usage import Usage, completion_usage
    from gateway.version import __version__

__all__ = [
    "Answer",
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
    "Event",
    "EventParser",
    "FunctionCall",
    "Multipart",
    "PromptTokensDetails",
    "Provider",
    "Secret",
    "Target",
    "Timeouts",
    "ToolCall",
    "ToolCallDelta",
    "Upstream",
    "Usage",
    "__version__",
    "completion_usage",
    "hookimpl",
]

# Where each name lives. They are imported when asked for, because every `gateway …` command passes through this
# file, and aiohttp alone takes 140 ms to import.
_HOME = {
    "Answer": "gateway.transport.upstream",
    "CallRecord": "gateway.receipt",
    "Chat": "gateway.provider",
    "ChatChunk": "gateway.schemas.chat_response",
    "ChatCompletion": "gateway.schemas.chat_response",
    "ChatMessage": "gateway.schemas.chat_response",
    "ChatRequest": "gateway.schemas.chat_request",
    "Choice": "gateway.schemas.chat_response",
    "ChunkChoice": "gateway.schemas.chat_response",
    "CompletionTokensDetails": "gateway.schemas.chat_response",
    "CompletionUsage": "gateway.schemas.chat_response",
    "Delta": "gateway.schemas.chat_response",
    "Event": "gateway.sse",
    "EventParser": "gateway.sse",
    "FunctionCall": "gateway.schemas.chat_response",
    "Multipart": "gateway.transport.multipart",
    "PromptTokensDetails": "gateway.schemas.chat_response",
    "Provider": "gateway.provider",
    "Secret": "gateway.secret",
    "Target": "gateway.provider",
    "Timeouts": "gateway.provider",
    "ToolCall": "gateway.schemas.chat_response",
    "ToolCallDelta": "gateway.schemas.chat_response",
    "Upstream": "gateway.transport.upstream",
    "Usage": "gateway.usage",
    "__version__": "gateway.version",
    "completion_usage": "gateway.usage",
    "hookimpl": "gateway.hookspecs",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value
