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
