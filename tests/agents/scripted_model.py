"""A model that follows the plan in its prompt, whatever agent asks and in whatever dialect.

`prompt(*steps)` has the plan in it, as base64, because agents escape quotes in different ways. A step `("shell",
COMMAND)` calls the shell tool that the agent offers, `("edit", FILE, OLD, NEW)` answers with a search-and-replace
block, `("say", TEXT)` ends the turn. The model has no state: how far it is follows from the answers since the prompt.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from msgspec import Struct, field

#: Names of shell tools: Claude Code, Gemini CLI, opencode, and those of Codex.
SHELLS = ("Bash", "run_shell_command", "bash", "exec_command", "shell_command", "shell")
COMMANDS = ("command", "cmd")  # the argument that is the command
_PLAN = re.compile(r"PLAN-([A-Za-z0-9_=-]+)-END")


def prompt(*steps: tuple[str, ...]) -> str:
    """What the agent is told."""
    return f"Change the file. PLAN-{base64.urlsafe_b64encode(json.dumps(steps).encode()).decode()}-END"


class ToolOffer(Struct):
    """A tool that a request offers."""

    name: str
    schema: dict[str, Any]


class Turn(Struct):
    """A message of a conversation, in no dialect."""

    role: str  # user, assistant or tool
    text: str = ""


class Conversation(Struct):
    """What a request asks, in no dialect."""

    model: str
    stream: bool = False
    turns: list[Turn] = field(default_factory=list)
    tools: list[ToolOffer] = field(default_factory=list)
    size: int = 0  # characters of the request
    session: str = ""  # of the prompt cache, if the request names one


class ModelReply(Struct):
    """What the model answers: a text, or a call of a tool."""

    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    tokens_in: int = 0
    cached: int = 0  # of `tokens_in`
    tokens_out: int = 0


def decide(conversation: Conversation) -> ModelReply:
    """The answer to `conversation`."""
    reply = _planned(conversation)
    reply.tokens_in = max(1, conversation.size // 4)
    reply.cached = reply.tokens_in // 2 if len(conversation.turns) > 2 else 0
    reply.tokens_out = 20 + len(reply.text) // 4 + len(json.dumps(reply.arguments)) // 4
    return reply


def _planned(conversation: Conversation) -> ModelReply:
    asked = [(n, _PLAN.findall(turn.text)) for n, turn in enumerate(conversation.turns) if turn.role == "user"]
    found = [(n, plans[-1]) for n, plans in asked if plans]
    if not found:
        return ModelReply("Nothing to do.")
    at, encoded = found[-1]
    plan = json.loads(base64.urlsafe_b64decode(encoded))
    answers = [turn for turn in conversation.turns[at + 1 :] if turn.role == "assistant"]
    if plan[0][0] == "edit":  # aider writes answers of its own into the history
        answers = [turn for turn in answers if "<<<<<<< SEARCH" in turn.text]
    step = plan[min(len(answers), len(plan) - 1)]
    if step[0] == "say":
        return ModelReply(step[1])
    if step[0] == "edit":
        return ModelReply(_edit_block(*step[1:]))
    shell = next((tool for name in SHELLS for tool in conversation.tools if tool.name == name), None)
    if shell is None:  # a request for a title, for example
        return ModelReply("A small change")
    return ModelReply(tool=shell.name, arguments=_arguments(shell.schema, step[1]))


def _arguments(schema: dict[str, Any], command: str) -> dict[str, Any]:
    """Arguments of a shell tool that run `command`, by the schema that it was offered with."""
    fields = schema.get("properties", {})
    arguments: dict[str, Any] = dict.fromkeys(schema.get("required", []), "run a command")
    name = next(name for name in COMMANDS if name in fields)
    listed = str(fields[name].get("type", "")).lower() == "array"
    arguments[name] = ["bash", "-lc", command] if listed else command
    return arguments


def _edit_block(file: str, old: str, new: str) -> str:
    """A change in the form that aider reads."""
    return f"{file}\n```\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\n"
