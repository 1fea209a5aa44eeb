"""The situations of the standards, as data: the requests of each, and what must come back.

Those of Responses are the situations of the public compliance suite of Open Responses; the other APIs have the same
ones as far as they know them. A body may have the placeholders `MODEL` and `LIMIT`, and, from the answer before, `ID`,
`CALL` (the id of its call) and `OUTPUT` (its items, in place of one item of a list).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

MODEL, LIMIT, ID, CALL, OUTPUT = "{model}", "{limit}", "{id}", "{call}", "{output}"
SAY, FOLLOW, TERSE = "Say hello in exactly three words.", "Say it once more, in capitals.", "Answer like a pirate."
ASK, TOOL, ABOUT = "What is the weather in Oslo? Call the tool.", "get_weather", "The weather of a city, now."
LOOK = "Which colour has this image? Answer in one word."
#: A red square of 64 by 64 pixels.
IMAGE = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQEBAQEBAQEBAQEBAQEBAQEBA"
    "QEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC"
)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = '{"celsius": 12}'
Body = dict[str, Any]


class Step(Struct, frozen=True, kw_only=True):
    """One request. `wants`: what the answer must have: text, call, compaction, vectors, models, a refusal, or echo."""

    path: str
    body: Body | None = None  # None: GET
    wants: str = "text"
    streamed: bool = False
    socket: bool = False


class Situation(Struct, frozen=True, kw_only=True):
    """Requests, one after the other, and one socket for those that are sent on one."""

    api: str
    name: str
    steps: tuple[Step, ...]


def _responses() -> list[Situation]:
    tools = [{"type": "function", "name": TOOL, "description": ABOUT, "parameters": SCHEMA, "strict": False}]
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}", "detail": "auto"}
    user = {"type": "message", "role": "user", "content": SAY}
    result = {"type": "function_call_output", "call_id": CALL, "output": WEATHER}
    ask = _step("/responses", model=MODEL, max_output_tokens=LIMIT, input=[user])
    asked = {"type": "message", "role": "user", "content": ASK}
    call = _but(ask, wants="call", input=[asked], tools=tools, tool_choice="auto")
    again = {"type": "message", "role": "user", "content": FOLLOW}
    said = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hello, dear world!", "annotations": []}],
    }
    compact = Step(path="/responses/compact", body={"model": MODEL, "input": [user, said]}, wants="compaction")
    return [
        _one("responses", "text", ask),
        _one("responses", "text, streamed", _streamed(ask)),
        _one("responses", "system prompt", _but(ask, input=[{**user, "role": "system", "content": TERSE}, user])),
        _one("responses", "tool call", call),
        _one("responses", "tool call, streamed", _streamed(call)),
        _one("responses", "tool call and its result", call, _but(call, wants="text", input=[asked, OUTPUT, result])),
        _one(
            "responses",
            "image",
            _but(ask, input=[{**user, "content": [{"type": "input_text", "text": LOOK}, image]}]),
        ),
        _one("responses", "turns", _but(ask, input=[user, said, again])),
        _one(
            "responses",
            "string input with settings",
            _but(ask, wants="echo", input=SAY, instructions=TERSE, temperature=0.5, metadata={"check": "settings"}),
        ),
        _one("responses", "compaction", compact, _but(ask, input=[OUTPUT, again])),
        _one("responses", "compaction without a model", _but(compact, wants="refusal", model=None)),
    ]


def _sockets() -> list[Situation]:
    user = {"type": "message", "role": "user", "content": SAY}
    body = {"type": "response.create", "model": MODEL, "max_output_tokens": LIMIT, "input": [user], "store": False}
    first = Step(path="/responses", body=body, socket=True)
    again = [{"type": "message", "role": "user", "content": FOLLOW}]
    compact = Step(path="/responses/compact", body={"model": MODEL, "input": [user]}, wants="compaction")
    return [
        _one("websocket", "one response", first),
        _one("websocket", "second turn by id", first, _but(first, previous_response_id=ID, input=again)),
        _one("websocket", "unknown id", _but(first, wants="refusal", previous_response_id="resp_unknown", input=again)),
        _one("websocket", "new chain from a compaction", first, compact, _but(first, input=[OUTPUT, *again])),
    ]


def _chat() -> list[Situation]:
    function = {"name": TOOL, "description": ABOUT, "parameters": SCHEMA}
    user = {"role": "user", "content": SAY}
    ask = _step("/chat/completions", model=MODEL, max_completion_tokens=LIMIT, messages=[user])
    call = _but(
        ask,
        wants="call",
        messages=[{"role": "user", "content": ASK}],
        tools=[{"type": "function", "function": function}],
    )
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
    result = {"role": "tool", "tool_call_id": CALL, "content": WEATHER}
    returned = [{"role": "user", "content": ASK}, OUTPUT, result]
    turns = [user, {"role": "assistant", "content": "Hello, dear world!"}, {"role": "user", "content": FOLLOW}]
    return [
        _one("chat", "text", ask),
        _one("chat", "text, streamed", _streamed(ask, stream_options={"include_usage": True})),
        _one("chat", "system prompt", _but(ask, messages=[{"role": "system", "content": TERSE}, user])),
        _one("chat", "tool call", call),
        _one("chat", "tool call, streamed", _streamed(call)),
        _one("chat", "tool call and its result", call, _but(call, wants="text", messages=returned)),
        _one("chat", "image", _but(ask, messages=[{**user, "content": [{"type": "text", "text": LOOK}, image]}])),
        _one("chat", "turns", _but(ask, messages=turns)),
        _one("chat", "request without messages", _but(ask, wants="refusal", messages=None)),
    ]


def _messages() -> list[Situation]:
    user = {"role": "user", "content": SAY}
    ask = _step("/messages", model=MODEL, max_tokens=LIMIT, messages=[user])
    tools = [{"name": TOOL, "description": ABOUT, "input_schema": SCHEMA}]
    call = _but(ask, wants="call", messages=[{"role": "user", "content": ASK}], tools=tools)
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    image = [{"type": "image", "source": source}, {"type": "text", "text": LOOK}]
    result = {"type": "tool_result", "tool_use_id": CALL, "content": WEATHER}
    returned = [{"role": "user", "content": ASK}, OUTPUT, {"role": "user", "content": [result]}]
    turns = [user, {"role": "assistant", "content": "Hello, dear world!"}, {"role": "user", "content": FOLLOW}]
    return [
        _one("messages", "text", ask),
        _one("messages", "text, streamed", _streamed(ask)),
        _one("messages", "system prompt", _but(ask, system=TERSE)),
        _one("messages", "tool call", call),
        _one("messages", "tool call, streamed", _streamed(call)),
        _one("messages", "tool call and its result", call, _but(call, wants="text", messages=returned)),
        _one("messages", "image", _but(ask, messages=[{"role": "user", "content": image}])),
        _one("messages", "turns", _but(ask, messages=turns)),
        _one("messages", "request without messages", _but(ask, wants="refusal", messages=None)),
    ]


def _gemini() -> list[Situation]:
    whole, stream = f"/models/{MODEL}:generateContent", f"/models/{MODEL}:streamGenerateContent?alt=sse"
    user = {"role": "user", "parts": [{"text": SAY}]}
    ask = _step(whole, contents=[user], generationConfig={"maxOutputTokens": LIMIT})
    declared = {"name": TOOL, "description": ABOUT, "parametersJsonSchema": SCHEMA}
    asked = {"role": "user", "parts": [{"text": ASK}]}
    call = _but(ask, wants="call", contents=[asked], tools=[{"functionDeclarations": [declared]}])
    image = {"inlineData": {"mimeType": "image/png", "data": IMAGE}}
    result = {"functionResponse": {"name": TOOL, "response": {"celsius": 12}}}
    returned = [asked, OUTPUT, {"role": "user", "parts": [result]}]
    turns = [
        user,
        {"role": "model", "parts": [{"text": "Hello, dear world!"}]},
        {"role": "user", "parts": [{"text": FOLLOW}]},
    ]
    return [
        _one("gemini", "text", ask),
        _one("gemini", "text, streamed", structs.replace(ask, path=stream, streamed=True)),
        _one("gemini", "system prompt", _but(ask, systemInstruction={"parts": [{"text": TERSE}]})),
        _one("gemini", "tool call", call),
        _one("gemini", "tool call, streamed", structs.replace(call, path=stream, streamed=True)),
        _one("gemini", "tool call and its result", call, _but(call, wants="text", contents=returned)),
        _one("gemini", "image", _but(ask, contents=[{"role": "user", "parts": [{"text": LOOK}, image]}])),
        _one("gemini", "turns", _but(ask, contents=turns)),
        _one("gemini", "request without contents", _but(ask, wants="refusal", contents=None)),
    ]


def _embeddings() -> list[Situation]:
    ask = _step("/embeddings", model=MODEL, input="Hello")
    ask = structs.replace(ask, wants="vectors")
    return [
        _one("embeddings", "a text", ask),
        _one("embeddings", "two texts", _but(ask, input=["Hello", "world"])),
        _one("embeddings", "base64", _but(ask, encoding_format="base64")),
        _one("embeddings", "request without input", _but(ask, wants="refusal", input=None)),
    ]


def _step(path: str, **body: Any) -> Step:
    return Step(path=path, body=body)


def _but(step: Step, *, wants: str = "", **fields: Any) -> Step:
    """The step with other fields; None removes one."""
    body = {name: value for name, value in {**(step.body or {}), **fields}.items() if value is not None}
    return structs.replace(step, body=body, wants=wants or step.wants)


def _streamed(step: Step, **fields: Any) -> Step:
    return structs.replace(_but(step, stream=True, **fields), streamed=True)


def _one(api: str, name: str, *steps: Step) -> Situation:
    return Situation(api=api, name=name, steps=steps)


#: In the order in which they run.
SITUATIONS = (
    *_responses(),
    *_sockets(),
    *_chat(),
    *_messages(),
    *_gemini(),
    _one("models", "list", Step(path="/models", wants="models")),
    *_embeddings(),
)
APIS = tuple(dict.fromkeys(one.api for one in SITUATIONS))
#: Without those that a chat model does not have.
USUAL = tuple(api for api in APIS if api != "embeddings")
