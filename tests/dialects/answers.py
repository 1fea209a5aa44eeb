"""Answers of upstreams in each dialect, whole and streamed, from one description."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from gateway.testing import Reply, Seen

from . import bedrock

Document = dict[str, Any]

TOKENS_IN, CACHED, TOKENS_OUT = 100, 40, 20
SIGNATURE = "c2lnbmF0dXJlLW9mLXRoaW5raW5n"


class Call(Struct, frozen=True):
    """A tool that the model calls."""

    name: str
    arguments: Document


class Answer(Struct, frozen=True):
    """What the model answers, and its tokens: those of the prompt, those of them from the cache, those of the answer.

    Tokens that a cache took are counted with the prompt.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    finish: str = "stop"  # stop, length or refusal
    tokens_in: int = TOKENS_IN
    cached: int = CACHED
    written: int = 0  # into the cache; of `tokens_in`
    tokens_out: int = TOKENS_OUT
    first_call: int = 0  # the number of its first call in the conversation


def reply(answer: Answer, seen: Seen) -> Reply:
    """The answer to a request, in the dialect of its path."""
    path = seen.path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return _chat(answer, streamed=bool(seen.json.get("stream")))
    if path.endswith("/responses"):
        return _responses(answer, streamed=bool(seen.json.get("stream")))
    if path.endswith("/messages"):
        return _messages(answer, streamed=bool(seen.json.get("stream")))
    if path.endswith("/invoke"):
        return _messages(answer, streamed=False)
    if path.endswith("/invoke-with-response-stream"):
        return bedrock.invoked(_messages(answer, streamed=True))
    if path.endswith(("/converse", "/converse-stream")):
        return _converse(answer, streamed=path.endswith("-stream"))
    return _gemini(answer, streamed=":stream" in path)


def call_id(number: int) -> str:
    """The id of a call in the dialects that have ids."""
    return f"call_{number:024d}"


# Chat completions --------------------------------------------------------------------------------------------------


def _chat(answer: Answer, *, streamed: bool) -> Reply:
    reasons = {"stop": "tool_calls" if answer.calls else "stop", "length": "length", "refusal": "content_filter"}
    calls = [
        {"id": call_id(n), "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
        for n, c in enumerate(answer.calls, answer.first_call)
    ]
    message: Document = {"role": "assistant", "content": answer.text or None}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if calls:
        message["tool_calls"] = calls
    usage = {
        "prompt_tokens": answer.tokens_in,
        "completion_tokens": answer.tokens_out,
        "total_tokens": answer.tokens_in + answer.tokens_out,
        "prompt_tokens_details": {"cached_tokens": answer.cached},
    }
    head = {"id": "up", "created": 1, "model": "up"}
    reason = reasons[answer.finish]
    if not streamed:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return Reply.json(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
    if calls:
        message["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
    parts = [(message, None), ({}, reason)]
    choices: list[list[Document]] = [[{"index": 0, "delta": d, "finish_reason": r}] for d, r in parts]
    chunks = [head | {"object": "chat.completion.chunk", "choices": one} for one in choices]
    return Reply.stream([*chunks, head | {"object": "chat.completion.chunk", "choices": [], "usage": usage}])


# Responses ---------------------------------------------------------------------------------------------------------


def _responses(answer: Answer, *, streamed: bool) -> Reply:
    items: list[Document] = []
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        items.append({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": SIGNATURE})
    for n, c in enumerate(answer.calls, answer.first_call):
        call = {"call_id": call_id(n), "name": c.name, "arguments": json.dumps(c.arguments)}
        items.append({"id": f"fc_{n}", "type": "function_call", "status": "completed", **call})
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        items.append(message | {"content": content})
    reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
    status = "completed" if answer.finish == "stop" else "incomplete"
    details = None if answer.finish == "stop" else {"reason": reasons[answer.finish]}
    usage = {
        "input_tokens": answer.tokens_in,
        "input_tokens_details": {"cached_tokens": answer.cached},
        "output_tokens": answer.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.tokens_in + answer.tokens_out,
    }
    head = {"id": "resp_up", "object": "response", "created_at": 1, "model": "up", "error": None}
    done = head | {"status": status, "incomplete_details": details, "output": items, "usage": usage}
    if not streamed:
        return Reply.json(done)
    begun: Document = head | {"status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[Document] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(items):
        events += _item_events(index, item)
    events.append({"type": f"response.{status}", "response": done})
    return _named([one | {"sequence_number": n} for n, one in enumerate(events)])


def _item_events(index: int, item: Document) -> list[Document]:
    at = {"item_id": item["id"], "output_index": index}
    begun: Document = item | {"status": "in_progress"}
    added: Document = {"type": "response.output_item.added", "output_index": index, "item": begun}
    done = {"type": "response.output_item.done", "output_index": index, "item": item}
    if item["type"] == "function_call":
        begun |= {"arguments": ""}
        body = [{"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}]
        body.append({"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]})
    elif item["type"] == "reasoning":
        begun |= {"summary": []}
        text = item["summary"][0]["text"]
        part = {"type": "summary_text", "text": ""}
        at = at | {"summary_index": 0}
        body = [{"type": "response.reasoning_summary_part.added", **at, "part": part}]
        body.append({"type": "response.reasoning_summary_text.delta", **at, "delta": text})
        body.append({"type": "response.reasoning_summary_text.done", **at, "text": text})
        body.append({"type": "response.reasoning_summary_part.done", **at, "part": part | {"text": text}})
    else:
        begun |= {"content": []}
        text, part = item["content"][0]["text"], item["content"][0]
        at = at | {"content_index": 0}
        body = [{"type": "response.content_part.added", **at, "part": part | {"text": ""}}]
        body.append({"type": "response.output_text.delta", **at, "delta": text, "logprobs": []})
        body.append({"type": "response.output_text.done", **at, "text": text, "logprobs": []})
        body.append({"type": "response.content_part.done", **at, "part": part})
    return [added, *body, done]


# Messages ----------------------------------------------------------------------------------------------------------


def _messages(answer: Answer, *, streamed: bool) -> Reply:
    blocks: list[Document] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": SIGNATURE})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    blocks += [
        {"type": "tool_use", "id": call_id(n), "name": c.name, "input": c.arguments}
        for n, c in enumerate(answer.calls, answer.first_call)
    ]
    reasons = {"stop": "tool_use" if answer.calls else "end_turn", "length": "max_tokens", "refusal": "refusal"}
    usage = {
        "input_tokens": answer.tokens_in - answer.cached - answer.written,
        "cache_read_input_tokens": answer.cached,
        "cache_creation_input_tokens": answer.written,
        "output_tokens": answer.tokens_out,
    }
    head = {"id": "msg_up", "type": "message", "role": "assistant", "model": "up", "stop_sequence": None}
    if not streamed:
        return Reply.json(head | {"content": blocks, "stop_reason": reasons[answer.finish], "usage": usage})
    begun: Document = head | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    events: list[Document] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        events += _block_events(index, block)
    delta = {"stop_reason": reasons[answer.finish], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]
    return _named(events)


def _converse(answer: Answer, *, streamed: bool) -> Reply:
    blocks: list[Document] = []
    if answer.thinking:
        blocks.append({"reasoningContent": {"reasoningText": {"text": answer.thinking, "signature": SIGNATURE}}})
    if answer.text:
        blocks.append({"text": answer.text})
    blocks += [
        {"toolUse": {"toolUseId": call_id(n), "name": c.name, "input": c.arguments}}
        for n, c in enumerate(answer.calls, answer.first_call)
    ]
    reasons = {
        "stop": "tool_use" if answer.calls else "end_turn",
        "length": "max_tokens",
        "refusal": "content_filtered",
    }
    usage = {
        "inputTokens": answer.tokens_in - answer.cached - answer.written,
        "cacheReadInputTokens": answer.cached,
        "cacheWriteInputTokens": answer.written,
        "outputTokens": answer.tokens_out,
        "totalTokens": answer.tokens_in + answer.tokens_out,
    }
    write = bedrock.streamed if streamed else bedrock.whole
    return write(blocks, reasons[answer.finish], usage)


def _block_events(index: int, block: Document) -> list[Document]:
    kind = block["type"]
    if kind == "tool_use":
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    elif kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    else:
        deltas = [{"type": "text_delta", "text": block["text"]}]
    empty: Document = {name: "" for name in ("text", "thinking", "signature") if name in block}
    if kind == "tool_use":
        empty = {"input": {}}
    events = [{"type": "content_block_start", "index": index, "content_block": block | empty}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [*events, {"type": "content_block_stop", "index": index}]


def _named(events: list[Document]) -> Reply:
    text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return Reply(frames=[text.encode()], headers={"Content-Type": "text/event-stream"})


# Gemini ------------------------------------------------------------------------------------------------------------


def _gemini(answer: Answer, *, streamed: bool) -> Reply:
    parts: list[Document] = []
    if answer.thinking:
        parts.append({"text": answer.thinking, "thought": True})
    if answer.text:
        parts.append({"text": answer.text})
    parts += [{"functionCall": {"name": c.name, "args": c.arguments}} for c in answer.calls]
    if answer.thinking and answer.calls:
        first = next(part for part in parts if "functionCall" in part)
        first["thoughtSignature"] = SIGNATURE
    reasons = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
    usage = {
        "promptTokenCount": answer.tokens_in,
        "cachedContentTokenCount": answer.cached,
        "candidatesTokenCount": answer.tokens_out,
        "totalTokenCount": answer.tokens_in + answer.tokens_out,
    }
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": reasons[answer.finish]}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "up", "responseId": "up"}
    return Reply.stream([whole], done=False) if streamed else Reply.json(whole)
