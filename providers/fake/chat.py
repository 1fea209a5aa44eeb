"""Made-up chat answers: what a script says, or what the request itself suggests; words count as tokens.

A prompt with "call tide" or "use the tool `tide` with {"port": "Brest"}" in its last 10,000 characters gets a call of
that tool, if it is offered. So agents can be tried without a real model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway import ChatChunk, ChatRequest, ChunkChoice, CompletionUsage
from gateway.schemas.chat_messages import FunctionChoice, FunctionDefinition, FunctionTool, UserMessage
from gateway.schemas.chat_options import JSONObjectFormat, JSONSchemaFormat

from .chat_media import PER_SECOND, media_deltas, media_tokens
from .script import Script, ScriptedCall

MOST_READ = 10_000  # characters at the end of a prompt, in which a tool may be asked for
_ASKED = re.compile(r"\b(?:call|use|run) (?:the )?(?:tool |function )?[`'\"]?([\w-]{1,64})", re.IGNORECASE)
MAX_DEPTH = 8  # of a value made up to fit a JSON schema


class ChatPlan:
    """What to answer to one request."""

    def __init__(self, request: ChatRequest, script: Script) -> None:
        self.request = request
        self.script = script
        self.calls = list(script.tool_calls) or _calls(request)
        text = "" if self.calls and script.text is None else script.text
        self.words, self.cut = _limited(request, _answer(request) if text is None else text)

    def chunks(self) -> Iterator[ChatChunk]:
        """Everything but usage."""
        for index in range(self.request.choices):
            if self.script.reasoning:
                yield ChatChunk.reasoning(self.script.reasoning, index=index)
            for position, call in enumerate(self.calls):
                id = f"call_fake{index}{position}"
                yield ChatChunk.tool_call(position, id=id, name=call.name, index=index)
                yield ChatChunk.tool_call(position, arguments=call.arguments, index=index)
            yield from self._text(index)
            yield from (
                ChatChunk(choices=[ChunkChoice(index, delta)])
                for delta in media_deltas(self.script, calls=len(self.calls))
            )
            if not self.script.truncated:
                yield ChatChunk.finish(self._finish(), index=index)

    def usage(self) -> CompletionUsage | None:
        """The counts, or what the script makes of them."""
        prompt = _count(self.request.messages)
        script = self.script
        completion = len(self.words) + len(script.reasoning.split()) + script.hidden_reasoning
        completion += media_tokens(script)
        completion = (completion + sum(len(call.arguments.split()) + 1 for call in self.calls)) * self.request.choices
        usage = CompletionUsage(prompt, completion, prompt + completion)
        reasoned = len(script.reasoning.split()) + script.hidden_reasoning
        usage.completion_tokens_details.reasoning_tokens = reasoned * self.request.choices
        usage.completion_tokens_details.audio_tokens = script.audio_seconds * PER_SECOND * self.request.choices
        if script.usage == "none":
            return None
        if script.usage in ("zero", "large"):
            usage.completion_tokens = script.wrong(completion)
            return usage
        wrong = script.wrong(completion)
        if wrong is not None:
            usage.prompt_tokens = usage.completion_tokens = usage.total_tokens = wrong
        return usage

    def early_usage(self) -> CompletionUsage:
        """The count of the prompt, before any of the answer."""
        prompt = _count(self.request.messages)
        return CompletionUsage(prompt, 0, prompt)

    def _text(self, index: int) -> Iterator[ChatChunk]:
        pieces = self._pieces()
        while True:
            for piece in pieces:
                yield ChatChunk.text(piece, index=index)
            if not (self.script.endless and pieces):
                return

    def _pieces(self) -> list[str]:
        if not self.script.chunks:
            return self.words
        size = -(-len(self.words) // self.script.chunks)
        pieces = ["".join(self.words[start : start + size]) for start in range(0, len(self.words), size or 1)]
        return pieces + ["."] * (self.script.chunks - len(pieces))

    def _finish(self) -> str:
        if self.script.finish_reason:
            return self.script.finish_reason
        return "tool_calls" if self.calls else "length" if self.cut else "stop"


def _answer(request: ChatRequest) -> str:
    """The answer that a request without a script gets."""
    wanted = request.response_format
    if isinstance(wanted, JSONSchemaFormat):
        return msgspec.json.encode(_example(_schema(wanted.json_schema.schema))).decode()
    said = _last_text(request)
    if isinstance(wanted, JSONObjectFormat):
        return msgspec.json.encode({"you_said": said}).decode()
    return f"You said: {said}"


def _last_text(request: ChatRequest) -> str:
    for message in reversed(request.messages):
        content = message.content
        if isinstance(content, str):
            return content
        if content is not None:
            return " ".join(getattr(part, "text", f"[{type(part).__name__}]") for part in content)
    return ""


def _limited(request: ChatRequest, text: str) -> tuple[list[str], bool]:
    """The words of `text`, spaces kept, up to the stop text and the token limit; whether the limit cut it."""
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    for stop in stops:
        text = text.partition(stop)[0]
    words = text.split(" ")
    words = [f"{word} " for word in words[:-1]] + words[-1:]
    words = [word for word in words if word]
    limit = request.max_output
    return (words, False) if limit is None or len(words) <= limit else (words[:limit], True)


def _calls(request: ChatRequest) -> list[ScriptedCall]:
    """The call that the request insists on, or that its prompt asks for."""
    choice = request.as_tool_choice
    tools = {tool.function.name: tool.function for tool in request.as_tools if isinstance(tool, FunctionTool)}
    if not tools or choice == "none":
        return []
    asked = _asked_call(request, tools)
    if isinstance(choice, FunctionChoice):
        name = choice.function.name
        return [asked] if asked and asked.name == name else [_made_up(tools[name])] if name in tools else []
    return [asked] if asked else [_made_up(next(iter(tools.values())))] if choice == "required" else []


def _made_up(tool: FunctionDefinition) -> ScriptedCall:
    """A call with arguments that fit the tool's schema."""
    return ScriptedCall(tool.name, msgspec.json.encode(_example(_schema(tool.parameters))).decode())


def _asked_call(request: ChatRequest, tools: dict[str, FunctionDefinition]) -> ScriptedCall | None:
    """The call that the last message, if it is the user's, asks for; with the JSON object behind the tool's name."""
    if not request.messages or not isinstance(request.messages[-1], UserMessage):
        return None
    text = _last_text(request)[-MOST_READ:]
    found = next((match for match in _ASKED.finditer(text) if match[1] in tools), None)
    if found is None:
        return None
    tool, start = tools[found[1]], text.find("{", found.end())
    try:
        arguments, end = json.JSONDecoder().raw_decode(text, max(start, 0))
        msgspec.json.decode(text[start:end])  # Python reads NaN, too
    except (ValueError, RecursionError):
        arguments = None
    return ScriptedCall(tool.name, json.dumps(arguments)) if isinstance(arguments, dict) else _made_up(tool)


def _schema(raw: Any) -> Any:
    return {} if raw is UNSET else msgspec.json.decode(raw) if isinstance(raw, Raw) else raw


def _example(schema: Any, depth: int = 0) -> Any:
    """A value that fits a simple JSON schema; the same one every time."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return {name: _example(inner, depth + 1) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [_example(schema.get("items", {}), depth + 1)] * max(1, schema.get("minItems", 1))
    return {"integer": 1, "number": 1.5, "boolean": True, "null": None}.get(str(kind), "text")


def _count(messages: Any) -> int:
    """Words of the prompt, as its tokens."""
    texts = (message.content for message in messages)
    return sum(len(str(text).split()) for text in texts if text is not None) or 1
