"""Sessions of agents in four dialects: each turn sends the whole conversation, with the marks that its agents write."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .clients import SCHEMA, ChatClient, Client, GeminiClient, Got, MessagesClient, ResponsesClient

Document = dict[str, Any]

RULES = "You are an agent. " * 40
DESCRIPTIONS = {"tide": "The tide of a port. " * 20, "ship": "The next ship. " * 20}
OPENAI_MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
CLAUDE_MARK = {"cache_control": {"type": "ephemeral"}}


class Session:
    """One conversation; Claude's mark moves to the last block of each request."""

    client: Client

    def __init__(self) -> None:
        self.entries: list[tuple[str, Any]] = []  # "user", "answer" or "results", and what it is

    def say(self, text: str) -> None:
        self.entries.append(("user", text))

    def carry(self, got: Got) -> None:
        """Keep an answer, and results for its calls."""
        self.entries.append(("answer", got.carried))
        if got.calls:
            self.entries.append(("results", [(id, name, f"{name}: six metres") for id, name, _ in got.calls]))

    @abstractmethod
    def body(self, model: str) -> tuple[str, Document]:
        """Path and body of the next request."""


class ChatSession(Session):
    """Chat completions; `mark`: what a part has at the marks."""

    client = ChatClient()

    def __init__(self, mark: Document) -> None:
        super().__init__()
        self.mark = mark

    def body(self, model: str) -> tuple[str, Document]:
        messages: list[Document] = [{"role": "system", "content": [{"type": "text", "text": RULES, **self.mark}]}]
        for number, (kind, entry) in enumerate(self.entries):
            mark = self.mark if number == len(self.entries) - 1 else {}
            if kind == "user":
                messages.append({"role": "user", "content": [{"type": "text", "text": entry, **mark}]})
            elif kind == "answer":
                messages.append(entry)
            else:
                for at, (id, _, text) in enumerate(entry):
                    own = mark if at == len(entry) - 1 else {}
                    part = {"type": "text", "text": text, **own}
                    messages.append({"role": "tool", "tool_call_id": id, "content": [part]})
        tools = [
            {"type": "function", "function": {"name": name, "description": words, "parameters": SCHEMA}}
            for name, words in DESCRIPTIONS.items()
        ]
        return "/v1/chat/completions", {"model": model, "messages": messages, "tools": tools, "max_tokens": 500}


class ResponsesSession(Session):
    """OpenAI's Responses."""

    client = ResponsesClient()

    def body(self, model: str) -> tuple[str, Document]:
        rules = {"type": "input_text", "text": RULES, **OPENAI_MARK}
        items: list[Document] = [{"type": "message", "role": "system", "content": [rules]}]
        for number, (kind, entry) in enumerate(self.entries):
            mark = OPENAI_MARK if number == len(self.entries) - 1 else {}
            if kind == "user":
                part = {"type": "input_text", "text": entry, **mark}
                items.append({"type": "message", "role": "user", "content": [part]})
            elif kind == "answer":
                items += entry
            else:
                for at, (id, _, text) in enumerate(entry):
                    own = mark if at == len(entry) - 1 else {}
                    output = [{"type": "input_text", "text": text, **own}]
                    items.append({"type": "function_call_output", "call_id": id, "output": output})
        tools = [
            {"type": "function", "name": name, "description": words, "parameters": SCHEMA, "strict": False}
            for name, words in DESCRIPTIONS.items()
        ]
        return "/v1/responses", {
            "model": model,
            "input": items,
            "tools": tools,
            "max_output_tokens": 500,
            "prompt_cache_key": "session-1",
        }


class MessagesSession(Session):
    """Anthropic's Messages, as Claude Code writes them."""

    client = MessagesClient()

    def body(self, model: str) -> tuple[str, Document]:
        messages: list[Document] = []
        for number, (kind, entry) in enumerate(self.entries):
            mark = CLAUDE_MARK if number == len(self.entries) - 1 else {}
            if kind == "user":
                messages.append({"role": "user", "content": [{"type": "text", "text": entry, **mark}]})
            elif kind == "answer":
                messages.append({"role": "assistant", "content": entry})
            else:
                results: list[Document] = [
                    {"type": "tool_result", "tool_use_id": id, "content": text} for id, _, text in entry
                ]
                results[-1] |= mark
                messages.append({"role": "user", "content": results})
        tools = [{"name": name, "description": words, "input_schema": SCHEMA} for name, words in DESCRIPTIONS.items()]
        system = [{"type": "text", "text": RULES, **CLAUDE_MARK}]
        return "/v1/messages", {
            "model": model,
            "system": system,
            "messages": messages,
            "tools": tools,
            "max_tokens": 500,
        }


class GeminiSession(Session):
    """Gemini's generateContent, which has no marks."""

    client = GeminiClient()

    def body(self, model: str) -> tuple[str, Document]:
        contents: list[Document] = []
        for kind, entry in self.entries:
            if kind == "user":
                contents.append({"role": "user", "parts": [{"text": entry}]})
            elif kind == "answer":
                contents.append({"role": "model", "parts": entry})
            else:
                parts = [{"functionResponse": {"name": name, "response": {"output": text}}} for _, name, text in entry]
                contents.append({"role": "user", "parts": parts})
        declared = [
            {"name": name, "description": words, "parametersJsonSchema": SCHEMA} for name, words in DESCRIPTIONS.items()
        ]
        return f"/v1beta/models/{model}:generateContent", {
            "systemInstruction": {"parts": [{"text": RULES}]},
            "contents": contents,
            "tools": [{"functionDeclarations": declared}],
            "generationConfig": {"maxOutputTokens": 500},
        }
