"""What an answer says, in no dialect, and what of it a situation misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from gateway.testing.servers.situations import TOOL, Body, Step


class Answer(Struct):
    """One answer. `output`: what the next request repeats of it; `ended`: it says that it is complete."""

    document: Body = {}
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)  # name and arguments as JSON
    id: str = ""
    call_id: str = ""  # of the first call
    output: list[Any] = field(default_factory=list)
    ended: bool = False
    has_usage: bool = False


def read_whole(api: str, document: Body) -> Answer:
    """The answer in a whole document that its standard's classes have read; any other may raise anything."""
    return _READERS[api](document)


def missed(step: Step, answer: Answer) -> list[str]:
    """What the situation wants and the answer has not."""
    if step.wants in ("vectors", "models", "compaction"):
        return _missed_items(step.wants, answer)
    found = []
    if step.wants == "call":
        found += _missed_call(answer)
    elif not answer.text.strip():
        found.append("the answer has no text")
    if not answer.ended:
        found.append("the answer does not say that it is complete")
    if not answer.has_usage:
        found.append("the answer has no usage")
    if step.wants == "echo":
        found += _missed_echo(step.body or {}, answer.document)
    return found


def _missed_items(wants: str, answer: Answer) -> list[str]:
    if wants != "compaction":
        return [] if answer.output else [f"there are no {wants}"]
    has = any(isinstance(item, Mapping) and item.get("type") == "compaction" for item in answer.output)
    return [] if has else ["the output has no compaction"]


def _missed_call(answer: Answer) -> list[str]:
    if not answer.calls:
        return ["the answer has no tool call"]
    name, arguments = answer.calls[0]
    try:
        given = msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        return ["the arguments of the tool call are no JSON"]
    found = [] if name == TOOL else [f"the tool call names {name!r:.80}, a tool that was not offered"]
    return found if isinstance(given, dict) else [*found, "the arguments of the tool call are no object"]


def _missed_echo(sent: Body, document: Body) -> list[str]:
    names = ("temperature", "instructions", "metadata", "max_output_tokens")
    return [f"{name}: the setting is not repeated" for name in names if document.get(name) != sent[name]]


def _responses(document: Body) -> Answer:
    output = document["output"]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    calls = [item for item in output if item["type"] == "function_call"]
    return Answer(
        document,
        text="".join(part.get("text", "") for part in parts),
        calls=[(call["name"], call["arguments"]) for call in calls],
        id=document["id"],
        call_id=calls[0]["call_id"] if calls else "",
        output=output,
        ended=document.get("status") == "completed",
        has_usage=bool(document.get("usage")),
    )


def _chat(document: Body) -> Answer:
    choice = document["choices"][0]
    message = choice["message"]
    calls = [call for call in message.get("tool_calls") or () if call["type"] == "function"]
    return Answer(
        document,
        text=message.get("content") or "",
        calls=[(call["function"]["name"], call["function"]["arguments"]) for call in calls],
        call_id=calls[0]["id"] if calls else "",
        output=[message],
        ended=choice["finish_reason"] in ("stop", "tool_calls"),
        has_usage=bool(document.get("usage")),
    )


def _messages(document: Body) -> Answer:
    blocks = document["content"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    return Answer(
        document,
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        calls=[(call["name"], msgspec.json.encode(call["input"]).decode()) for call in calls],
        call_id=calls[0]["id"] if calls else "",
        output=[{"role": "assistant", "content": blocks}],
        ended=document["stop_reason"] in ("end_turn", "tool_use"),
        has_usage=bool(document.get("usage")),
    )


def _gemini(document: Body) -> Answer:
    candidate = document["candidates"][0]
    parts = (candidate.get("content") or {}).get("parts") or []
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    return Answer(
        document,
        text="".join(part.get("text", "") for part in parts if not part.get("thought")),
        calls=[(call["name"], msgspec.json.encode(call.get("args", {})).decode()) for call in calls],
        output=[candidate.get("content")],
        ended=candidate.get("finishReason") == "STOP",
        has_usage=bool(document.get("usageMetadata")),
    )


def _listed(document: Body) -> Answer:
    return Answer(document, output=document["data"])


def _compaction(document: Body) -> Answer:
    return Answer(document, output=document["output"])


_READERS: Mapping[str, Callable[[Body], Answer]] = {
    "responses": _responses,
    "compactions": _compaction,
    "chat": _chat,
    "messages": _messages,
    "gemini": _gemini,
    "models": _listed,
    "embeddings": _listed,
}
