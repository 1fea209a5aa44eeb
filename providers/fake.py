"""A provider without a network: deterministic answers, and every way of failing that a script can ask for.

It serves `gateway serve --demo`, tests and benchmarks. Unscripted models repeat the last message, honour `max_tokens`,
`stop`, `n`, a required tool and a JSON schema, and count words as tokens. A script is chosen by the upstream's model::

    [providers.demo.models.broken]
    text = "one two three"
    fail_after = 2                 # chunks
    error = "UpstreamOverloaded"

Sharp edge: `usage = "text"` and its like yield values that no type checker would let pass; that is their purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway import Chat, ChatChunk, ChatRequest, CompletionUsage, Provider, Target, Upstream, errors, hookimpl
from gateway.schemas.chat_messages import FunctionChoice, FunctionTool
from gateway.schemas.chat_options import JSONObjectFormat, JSONSchemaFormat

MAX_DEPTH = 8  # of a value made up to fit a JSON schema

Failure = Literal[
    "UpstreamError",
    "UpstreamUnreachable",
    "UpstreamRejected",
    "UpstreamAuthError",
    "UpstreamInvalidResponse",
    "UpstreamRateLimited",
    "UpstreamOverloaded",
    "UpstreamTimeout",
    "UpstreamTruncated",
    "RuntimeError",
]
UsageKind = Literal["right", "none", "negative", "absurd", "text"]


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call to make, with the JSON text of its arguments."""

    name: str
    arguments: str = "{}"


class Script(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one model behaves."""

    text: str | None = None  # none: derived from the request
    reasoning: str = ""
    tool_calls: list[ScriptedCall] = []
    finish_reason: str = ""  # empty: what fits the answer
    latency: float = 0.0  # seconds before anything happens
    first_token: float = 0.0  # seconds more before the first chunk
    interval: float = 0.0  # seconds between chunks
    chunks: int = 0  # number of text chunks; 0: one for each word
    fail_after: int | None = None  # fail once so many chunks are out; 0: before the first
    error: Failure = "UpstreamError"
    endless: bool = False  # the text again and again
    silent_after: int | None = None  # say nothing more once so many chunks are out
    truncated: bool = False  # end without a finish reason
    usage: UsageKind = "right"


class FakeProvider(Provider, Chat):
    """Makes answers up."""

    name = "fake"

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """Scripts by the upstream's model name; other names get the default behaviour."""

        models: dict[str, Script] = {}

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._scripts = options.models
        self._default = Script()

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The scripted chunks of every choice, one choice after the other, then usage."""
        script = self._scripts.get(target.model, self._default)
        if script.latency or script.first_token:
            await asyncio.sleep(script.latency + script.first_token)
        plan = _Plan(request, script)
        sent = 0
        for chunk in plan.chunks():
            if sent == script.fail_after:
                raise _failure(script.error)
            if sent == script.silent_after:
                await asyncio.Event().wait()
            if sent and script.interval:
                await asyncio.sleep(script.interval)
            yield chunk
            sent += 1
            if script.endless and not script.interval and sent % 64 == 0:
                await asyncio.sleep(0)  # others must live beside a stream that never waits
        if sent == script.fail_after:
            raise _failure(script.error)
        usage = plan.usage()
        if usage is not None:
            yield ChatChunk.with_usage(usage)


class _Plan:
    """What to answer to one request."""

    def __init__(self, request: ChatRequest, script: Script) -> None:
        self.request = request
        self.script = script
        self.calls = list(script.tool_calls) or _required_calls(request)
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
            if not self.script.truncated:
                yield ChatChunk.finish(self._finish(), index=index)

    def usage(self) -> CompletionUsage | None:
        """The counts, or what the script makes of them."""
        prompt = _count(self.request.messages)
        completion = len(self.words) + len(self.script.reasoning.split())
        completion = (completion + sum(len(call.arguments.split()) + 1 for call in self.calls)) * self.request.choices
        usage = CompletionUsage(prompt, completion, prompt + completion)
        usage.completion_tokens_details.reasoning_tokens = len(self.script.reasoning.split()) * self.request.choices
        if self.script.usage == "none":
            return None
        wrong: Any = {"negative": -completion, "absurd": 10**18, "text": "many"}.get(self.script.usage)
        if wrong is not None:
            usage.prompt_tokens = usage.completion_tokens = usage.total_tokens = wrong
        return usage

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


def _required_calls(request: ChatRequest) -> list[ScriptedCall]:
    """The call that the request insists on, its arguments made up to fit the tool's schema."""
    choice = request.as_tool_choice
    tools = [tool.function for tool in request.as_tools if isinstance(tool, FunctionTool)]
    if isinstance(choice, FunctionChoice):
        tools = [tool for tool in tools if tool.name == choice.function.name]
    elif choice != "required":
        return []
    return [
        ScriptedCall(tool.name, msgspec.json.encode(_example(_schema(tool.parameters))).decode()) for tool in tools[:1]
    ]


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


def _failure(name: str) -> Exception:
    if name == "RuntimeError":
        return RuntimeError("the script says so")  # what a plugin with a bug raises
    failure: Exception = getattr(errors, name)()
    return failure


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `fake` plugin."""
    register(FakeProvider)
