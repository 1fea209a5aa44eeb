"""Messages requests for an upstream that speaks Messages: the body that was sent, with the few fields that are ours.

What the upstream does not take is gone before this is called. The model and the output limit are those of the
`ChatRequest`. Thinking and signatures stay byte for byte, except for thinking without a signature: it comes from an
upstream of another dialect, and Anthropic would refuse it. Sharp edge: a thinking budget must be below the output
limit, so one is lowered with a limit that was lowered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from gateway import ChatRequest, NativeRequest
from gateway.schemas.native_request import MESSAGES
from gateway.schemas.reasoning_state import is_ours

from .._shared.reasoning_effort import ANSWER, CLAUDE_BUDGETS, MIN_BUDGET
from .accepted import NEEDED, SYSTEM_TURNS
from .models import ModelTraits

Body = dict[str, Any]

_FOREIGN = re.compile(rb'"signature"\s*:\s*""|"data"\s*:\s*"gw1\.')
_SYSTEM_ROLE = re.compile(rb'"role"\s*:\s*"system"')
_turns = msgspec.json.Decoder(list[dict[str, Raw]])
_blocks = msgspec.json.Decoder(list[Raw])


class _Peek(msgspec.Struct):
    """What is read of a block."""

    type: str = ""
    signature: str | None = None
    thinking: str | None = None
    data: str | None = None


_peek = msgspec.json.Decoder(_Peek)


def native_of(request: ChatRequest) -> NativeRequest | None:
    """The request as it was sent in this dialect; None for one of another dialect."""
    native = request.native
    return native if native is not None and native.dialect == MESSAGES else None


def native_body(request: ChatRequest, native: NativeRequest, model: str, traits: ModelTraits) -> Body:
    """The body to send to the upstream's `model`, without its name and without `stream`."""
    limit = request.max_output or traits.default_max_tokens
    if traits.max_output_tokens is not None:
        limit = min(limit, traits.max_output_tokens)
    body: Body = {**native.fields, "max_tokens": limit}
    messages = bytes(native.fields["messages"])
    if _FOREIGN.search(messages):
        body["messages"] = without_foreign_thinking(messages)
    if "claude" in model:  # the flags of other vendors' models say nothing about their thinking
        _fit_thinking(body, traits)
    wanted = _object(body, "thinking")
    if wanted.get("type") == "enabled":
        _fit_budget(body, wanted, limit)
    return body


def flags_of(native: NativeRequest) -> list[str]:
    """The beta flags to send: the caller's, and those that its fields need."""
    flags = list(native.betas)
    needed = [flag for name, flag in NEEDED.items() if name in native.fields]
    if has_system_turn(native.fields["messages"]):
        needed.append(SYSTEM_TURNS)
    for flag in needed:
        family = flag.rsplit("-", 3)[0]
        if not any(sent.startswith(family) for sent in flags):
            flags.append(flag)
    return flags


def has_system_turn(messages: Raw) -> bool:
    """Whether a message has the role `system`."""
    if _SYSTEM_ROLE.search(bytes(messages)) is None:  # the usual case, without decoding
        return False
    return any(bytes(turn.get("role", b"")) == b'"system"' for turn in _turns.decode(messages))


# Thinking ----------------------------------------------------------------------------------------------------------


def without_foreign_thinking(messages: bytes) -> Raw:
    """The messages without thinking that has no signature, or the gateway's own; a turn of nothing else goes, too."""
    turns = _turns.decode(messages)
    kept = []
    for turn in turns:
        content = bytes(turn.get("content", b""))
        if _FOREIGN.search(content) and content.lstrip().startswith(b"["):
            blocks = [block for block in _blocks.decode(content) if not _is_foreign(_peek.decode(block))]
            if not blocks:
                continue
            turn["content"] = Raw(msgspec.json.encode(blocks))
        kept.append(turn)
    return Raw(msgspec.json.encode(kept))


def _is_foreign(block: _Peek) -> bool:
    return (block.type == "thinking" and not block.signature) or is_ours(block.data)


def _fit_thinking(body: Body, traits: ModelTraits) -> None:
    """Write the thinking as the model knows it: as a budget or as an effort."""
    wanted = _object(body, "thinking")
    kind = wanted.get("type")
    if traits.thinking_mode == "budget":
        effort = _drop_effort(body)
        if kind == "adaptive":
            budget = CLAUDE_BUDGETS.get(effort or "high", CLAUDE_BUDGETS["high"])
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif traits.thinking_mode == "none":
        body.pop("thinking", None)
        _drop_effort(body)
    elif kind == "enabled":
        display = {"display": wanted["display"]} if "display" in wanted else {}
        body["thinking"] = {"type": "adaptive", **display}
    elif kind == "disabled" and not traits.thinking_off:
        del body["thinking"]


def _fit_budget(body: Body, wanted: Body, limit: int) -> None:
    """Lower a budget that is not below the output limit; without room for the least one, the model does not think."""
    budget = wanted.get("budget_tokens")
    if not isinstance(budget, int) or budget < limit:
        return
    budget = limit - min(ANSWER, limit // 2)
    if budget < MIN_BUDGET:
        del body["thinking"]
    else:
        body["thinking"] = {**wanted, "budget_tokens": budget}


def _drop_effort(body: Body) -> str | None:
    """Take the effort from a body for a model that knows none."""
    config = _object(body, "output_config")
    effort = config.pop("effort", None)
    if effort is None:
        return None
    if config:
        body["output_config"] = config
    else:
        del body["output_config"]
    return str(effort)


def _object(body: Body, name: str) -> dict[str, Any]:
    """A field of the body that is an object, decoded; empty if it is absent."""
    value = body.get(name)
    document = msgspec.json.decode(value) if isinstance(value, Raw) else value
    return document if isinstance(document, dict) else {}


def joined(flags: Sequence[str], configured: str) -> str:
    """The value of `anthropic-beta`, with the flags that the operator sends with every request."""
    own = [flag.strip() for flag in configured.split(",") if flag.strip()]
    return ",".join(dict.fromkeys([*own, *flags]))
