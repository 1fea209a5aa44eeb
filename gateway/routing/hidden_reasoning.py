"""Which targets may reason without showing it: such output is charged, but nothing of it is delivered.

The money for it must be held before the call, because a stream that delivers nothing cannot extend its hold. A model's
`reasoning` setting decides; "auto" uses the upstream's name of the model, and what its answers have shown.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.catalog import Model
from gateway.log import gateway_log
from gateway.plugins.provider import Target
from gateway.schemas.chat_request import ChatRequest

#: Upstream names of models that reason unless they are told not to. A prefix such as "models/" may precede them.
_REASONS = re.compile(
    r"(^|[/.:@])("
    r"gpt-5|gpt-6|gpt-oss|o[1-9]($|-)|codex-mini"
    r"|gemini-2\.5|gemini-[3-9]|gemini-[a-z-]+-latest"
    r"|deepseek-(reasoner|r\d)|grok-4|grok-3-mini|grok-code|magistral|qwq|kimi-k2-thinking|glm-(4\.[5-9]|[5-9])|minimax-m"
    r")|[-_](thinking|reasoning|reasoner)([-_:@]|$)",
    re.IGNORECASE,
)
_REASONS_NOT = re.compile(r"non-reasoning|gpt-5[\d.]*-chat", re.IGNORECASE)
#: Models that reason if a request asks for it.
_REASONS_IF_ASKED = re.compile(r"claude|command-a-reasoning|qwen3|nova-", re.IGNORECASE)

#: Fields of dialects that ask for reasoning, and the values with which they, or their members, decline it.
_ASKING = ("reasoning", "thinking", "enable_thinking", "chat_template_kwargs")
_DECLINING = (None, False, "none", "disabled", "off")
_DECLINING_MEMBERS = ("effort", "enabled", "type", "enable_thinking", "thinking")


class HiddenReasoning:
    """The answer for one target; `learn` changes it."""

    __slots__ = ("_in_spite", "_setting", "_usually", "expected_if_asked")

    def __init__(self, setting: bool | None, upstream: str) -> None:
        self._setting = setting
        self._usually = may_reason(upstream) if setting is None else setting
        self.expected_if_asked = self._usually or (setting is None and _REASONS_IF_ASKED.search(upstream) is not None)
        self._in_spite = False  # in spite of the effort "none"

    def expected(self, effort: str | None) -> bool:
        """Whether a request of this effort (`effort_of`) may be charged for reasoning that is not delivered."""
        if self._setting is not None:
            return self._setting
        if effort is None:
            return self._usually
        return self._in_spite if effort == "none" else self.expected_if_asked

    def learn(self, target: Target, effort: str | None = None) -> None:
        """Expect it of such requests from now on: the upstream has charged more reasoning than it delivered.

        What a call of some effort has shown says nothing about the calls that ask for none.
        """
        if self._setting is not None or self.expected(effort):
            return
        gateway_log.warning(
            "model %s of provider %s reasons without showing it; from now on the whole output limit is held. "
            'Set `reasoning = true` for "%s"',
            target.model,
            target.provider,
            target.public_model,
        )
        if effort == "none":
            self._in_spite = True
            return
        self.expected_if_asked = True
        if effort is None:
            self._usually = True


def effort_of(request: ChatRequest) -> str | None:
    """The `reasoning_effort` of a request as one target receives it; "asked" if a field of a dialect asks for some."""
    effort: str | None = request.reasoning_effort
    if request.extra and effort in {None, "none"} and any(_asks(request, name) for name in _ASKING):
        return "asked"
    return effort


def _asks(request: ChatRequest, name: str) -> bool:
    """Whether the field is forwarded and does not decline reasoning."""
    raw = request.fields.get(name)
    if raw is None:
        return False
    try:
        value: Any = msgspec.json.decode(raw)
    except msgspec.MsgspecError:  # a number beyond all types
        return True
    if isinstance(value, dict):
        return not any(member in value and _declines(value[member]) for member in _DECLINING_MEMBERS)
    return not _declines(value)


def _declines(value: object) -> bool:
    return any(value is one or (isinstance(one, str) and value == one) for one in _DECLINING)


def may_reason(upstream: str) -> bool:
    """Whether a model of this upstream name reasons unless it is told not to."""
    return _REASONS.search(upstream) is not None and _REASONS_NOT.search(upstream) is None


class HiddenReasoningTargets:
    """The answers for all targets, kept while the catalogue is reloaded."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, str, bool | None], HiddenReasoning] = {}

    def of(self, model: Model, target: Target) -> HiddenReasoning:
        """The answer for a target of `model`."""
        key = (target.provider, target.model, model.reasoning)
        found = self._targets.get(key)
        if found is None:
            found = self._targets[key] = HiddenReasoning(model.reasoning, target.model)
        return found
