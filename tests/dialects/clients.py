"""Clients of four dialects: a question as each asks it, an answer as each reads it.

Every client sends its question whole or streamed, and can send a second one that carries the first answer back
unchanged, with the results of its calls, as agents do.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from msgspec import Struct, field

Document = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNoaGgAAAMEAYFL09IQAAAAAElFTkSuQmCC"
PDF = "JVBERi0xLjcKdHJhaWxlcg=="
SCHEMA: Document = {
    "type": "object",
    "properties": {"port": {"type": "string"}},
    "required": ["port"],
    "additionalProperties": False,
}


class Question(Struct, frozen=True, kw_only=True):
    """What is asked."""

    text: str = "Which port?"
    image: bool = False
    pdf: bool = False
    tools: bool = False
    structured: bool = False
    stop: bool = False
    reasoning: bool = False


class Got(Struct):
    """An answer as a client reads it."""

    text: str = ""
    calls: list[tuple[str, str, Document]] = field(default_factory=list)  # id, name, arguments
    thinking: str = ""
    finish: str = ""  # the dialect's own word
    tokens: tuple[int, int, int] = (0, 0, 0)  # of the prompt, of these from the cache, of the answer
    carried: Any = None  # what the client sends back of this answer


class Client(ABC):
    """One dialect."""

    name: str
    words: ClassVar[dict[str, str]]  # its words for a stop, calls, a length and a refusal

    @abstractmethod
    def ask(self, model: str, question: Question, *, stream: bool, before: Got | None = None) -> tuple[str, Document]:
        """Path and body; `before`: an answer that is sent back, with a result for each of its calls."""

    @abstractmethod
    def read(self, body: str, *, stream: bool) -> Got:
        """The answer in a body."""


def events(body: str) -> list[Document]:
    """The JSON of each event of a stream."""
    lines = [line.removeprefix("data:").strip() for line in body.replace("\r\n", "\n").split("\n")]
    data = [line for line in lines if line.startswith(("{", "["))]
    return [json.loads(one) for one in data if one != "[DONE]"]


RESULT = "six metres"


class ChatClient(Client):
    """Chat completions."""

    name = "chat"
    words: ClassVar[dict[str, str]] = {
        "stop": "stop",
        "calls": "tool_calls",
        "length": "length",
        "refusal": "content_filter",
    }

    def ask(self, model: str, question: Question, *, stream: bool, before: Got | None = None) -> tuple[str, Document]:
        parts: list[Document] = [{"type": "text", "text": question.text}]
        if question.image:
            parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})
        if question.pdf:
            file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
            parts.append({"type": "file", "file": file})
        messages: list[Document] = [{"role": "system", "content": "Be short."}, {"role": "user", "content": parts}]
        if before is not None:
            messages.append(before.carried)
            messages += [{"role": "tool", "tool_call_id": one[0], "content": RESULT} for one in before.calls]
        body: Document = {"model": model, "messages": messages, "max_tokens": 500}
        if question.tools:
            function = {"name": "tide", "description": "The tide.", "parameters": SCHEMA}
            body["tools"] = [{"type": "function", "function": function}]
        if question.structured:
            schema = {"name": "record", "schema": SCHEMA, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if question.stop:
            body["stop"] = ["END"]
        if question.reasoning:
            body["reasoning_effort"] = "low"
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return "/v1/chat/completions", body

    def read(self, body: str, *, stream: bool) -> Got:
        message: Document = {"role": "assistant", "content": ""}
        if not stream:
            document = json.loads(body)
            message, finish = document["choices"][0]["message"], document["choices"][0]["finish_reason"]
            usage = document["usage"]
        else:
            chunks = events(body)
            finish, usage = "", chunks[-1]["usage"]
            for chunk in chunks:
                for choice in chunk["choices"]:
                    _add_delta(message, choice["delta"])
                    finish = choice["finish_reason"] or finish
        calls = [
            (one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
            for one in message.get("tool_calls") or []
        ]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        tokens = (usage["prompt_tokens"], cached, usage["completion_tokens"])
        thinking = message.get("reasoning_content") or ""
        return Got(message.get("content") or "", calls, thinking, finish, tokens, message)


def _add_delta(message: Document, delta: Document) -> None:
    for name in ("content", "reasoning_content"):
        if delta.get(name):
            message[name] = (message.get(name) or "") + delta[name]
    for name in ("thinking_blocks", "reasoning_details"):
        if delta.get(name):
            message[name] = message.get(name, []) + delta[name]
    for call in delta.get("tool_calls") or []:
        calls = message.setdefault("tool_calls", [])
        if call["index"] == len(calls):
            calls.append({"id": call["id"], "type": "function", "function": {"name": "", "arguments": ""}})
        known = calls[call["index"]]
        if call.get("extra_content"):
            known["extra_content"] = call["extra_content"]
        for name, value in call.get("function", {}).items():
            known["function"][name] += value or ""


class ResponsesClient(Client):
    """OpenAI's Responses."""

    name = "responses"
    words: ClassVar[dict[str, str]] = {
        "stop": "completed",
        "calls": "completed",
        "length": "incomplete max_output_tokens",
        "refusal": "incomplete content_filter",
    }

    def ask(self, model: str, question: Question, *, stream: bool, before: Got | None = None) -> tuple[str, Document]:
        parts: list[Document] = [{"type": "input_text", "text": question.text}]
        if question.image:
            parts.append({"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"})
        if question.pdf:
            data = f"data:application/pdf;base64,{PDF}"
            parts.append({"type": "input_file", "filename": "a.pdf", "file_data": data})
        items: list[Document] = [{"type": "message", "role": "user", "content": parts}]
        if before is not None:
            items += before.carried
            items += [{"type": "function_call_output", "call_id": one[0], "output": RESULT} for one in before.calls]
        body: Document = {"model": model, "input": items, "instructions": "Be short.", "max_output_tokens": 500}
        if question.tools:
            tool = {"name": "tide", "description": "The tide.", "parameters": SCHEMA, "strict": False}
            body["tools"] = [{"type": "function", **tool}]
        if question.structured:
            body["text"] = {"format": {"type": "json_schema", "name": "record", "schema": SCHEMA, "strict": True}}
        if question.reasoning:
            body |= {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        if stream:
            body["stream"] = True
        return "/v1/responses", body

    def read(self, body: str, *, stream: bool) -> Got:
        document = events(body)[-1]["response"] if stream else json.loads(body)
        got = Got(carried=document["output"], finish=document["status"])
        if document["incomplete_details"]:
            got.finish += " " + document["incomplete_details"]["reason"]
        for item in document["output"]:
            if item["type"] == "message":
                got.text += "".join(part.get("text", "") for part in item["content"])
            elif item["type"] == "function_call":
                got.calls.append((item["call_id"], item["name"], json.loads(item["arguments"])))
            elif item["type"] == "reasoning":
                got.thinking += "".join(part["text"] for part in item["summary"])
        usage = document["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        got.tokens = (usage["input_tokens"], cached, usage["output_tokens"])
        return got


class MessagesClient(Client):
    """Anthropic's Messages."""

    name = "messages"
    words: ClassVar[dict[str, str]] = {
        "stop": "end_turn",
        "calls": "tool_use",
        "length": "max_tokens",
        "refusal": "refusal",
    }

    def ask(self, model: str, question: Question, *, stream: bool, before: Got | None = None) -> tuple[str, Document]:
        blocks: list[Document] = [{"type": "text", "text": question.text}]
        if question.image:
            source = {"type": "base64", "media_type": "image/png", "data": PNG}
            blocks.append({"type": "image", "source": source})
        if question.pdf:
            source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
            blocks.append({"type": "document", "source": source})
        messages: list[Document] = [{"role": "user", "content": blocks}]
        if before is not None:
            messages.append({"role": "assistant", "content": before.carried})
            results = [{"type": "tool_result", "tool_use_id": one[0], "content": RESULT} for one in before.calls]
            messages.append({"role": "user", "content": results})
        # Above every budget of thinking, which Anthropic counts in this limit.
        body: Document = {"model": model, "messages": messages, "system": "Be short.", "max_tokens": 2000}
        if question.tools:
            body["tools"] = [{"name": "tide", "description": "The tide.", "input_schema": SCHEMA}]
        if question.structured:
            body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        if question.stop:
            body["stop_sequences"] = ["END"]
        if question.reasoning:
            body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        if stream:
            body["stream"] = True
        return "/v1/messages", body

    def read(self, body: str, *, stream: bool) -> Got:
        document = _joined(events(body)) if stream else json.loads(body)
        got = Got(carried=document["content"], finish=document["stop_reason"])
        for block in document["content"]:
            if block["type"] == "text":
                got.text += block["text"]
            elif block["type"] == "tool_use":
                got.calls.append((block["id"], block["name"], block["input"]))
            elif block["type"] == "thinking":
                got.thinking += block["thinking"]
        usage = document["usage"]
        cached = usage.get("cache_read_input_tokens") or 0
        written = usage.get("cache_creation_input_tokens") or 0
        got.tokens = (usage["input_tokens"] + cached + written, cached, usage["output_tokens"])
        return got


def _joined(frames: list[Document]) -> Document:
    """The message of a stream."""
    message: Document = {}
    partial: dict[int, str] = {}
    for frame in frames:
        if frame["type"] == "message_start":
            message = frame["message"]
        elif frame["type"] == "content_block_start":
            message["content"].append(dict(frame["content_block"]))
        elif frame["type"] == "content_block_delta":
            block, delta = message["content"][frame["index"]], frame["delta"]
            if delta["type"] == "input_json_delta":
                partial[frame["index"]] = partial.get(frame["index"], "") + delta["partial_json"]
            else:
                name = delta["type"].removesuffix("_delta")
                block[name] = block.get(name, "") + delta[name]
        elif frame["type"] == "content_block_stop" and frame["index"] in partial:
            message["content"][frame["index"]]["input"] = json.loads(partial[frame["index"]])
        elif frame["type"] == "message_delta":
            message |= frame["delta"]
            message["usage"] |= frame["usage"]
    assert frames[-1]["type"] == "message_stop"
    return message


class GeminiClient(Client):
    """Gemini's generateContent."""

    name = "gemini"
    words: ClassVar[dict[str, str]] = {"stop": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}

    def ask(self, model: str, question: Question, *, stream: bool, before: Got | None = None) -> tuple[str, Document]:
        parts: list[Document] = [{"text": question.text}]
        if question.image:
            parts.append({"inlineData": {"mimeType": "image/png", "data": PNG}})
        if question.pdf:
            parts.append({"inlineData": {"mimeType": "application/pdf", "data": PDF}})
        contents: list[Document] = [{"role": "user", "parts": parts}]
        if before is not None:
            contents.append({"role": "model", "parts": before.carried})
            results = [{"functionResponse": {"name": one[1], "response": {"output": RESULT}}} for one in before.calls]
            contents.append({"role": "user", "parts": results})
        config: Document = {"maxOutputTokens": 500}
        body: Document = {"contents": contents, "systemInstruction": {"parts": [{"text": "Be short."}]}}
        if question.tools:
            declared = {"name": "tide", "description": "The tide.", "parametersJsonSchema": SCHEMA}
            body["tools"] = [{"functionDeclarations": [declared]}]
        if question.structured:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
        if question.stop:
            config["stopSequences"] = ["END"]
        if question.reasoning:
            config["thinkingConfig"] = {"includeThoughts": True, "thinkingBudget": 1024}
        body["generationConfig"] = config
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{model}:{method}", body

    def read(self, body: str, *, stream: bool) -> Got:
        documents = events(body) if stream else [json.loads(body)]
        got = Got(carried=[])
        for document in documents:
            for candidate in document.get("candidates", []):
                got.finish = candidate.get("finishReason") or got.finish
                got.carried += candidate.get("content", {}).get("parts", [])
        for number, part in enumerate(got.carried):
            if "functionCall" in part:
                call = part["functionCall"]
                got.calls.append((call.get("id", str(number)), call["name"], call["args"]))
            elif part.get("thought"):
                got.thinking += part["text"]
            else:
                got.text += part.get("text", "")
        usage = documents[-1]["usageMetadata"]
        out = usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
        got.tokens = (usage["promptTokenCount"], usage.get("cachedContentTokenCount", 0), out)
        return got


CLIENTS: tuple[Client, ...] = (ChatClient(), ResponsesClient(), MessagesClient(), GeminiClient())
