"""Which targets may reason without showing it: such output is charged, but nothing of it is delivered.

The money for it must be held before the call, because a stream that delivers nothing cannot extend its hold. A model's
`reasoning` setting decides; "auto" uses the upstream's name of the model, and what its answers have shown.
"""

from __future__ import annotations

import re

from gateway.catalog import Model
from gateway.log import gateway_log
from gateway.plugins.provider import Target

#: Upstream names of models that reason unless they are told not to. A prefix such as "models/" may precede them.
_REASONS = re.compile(
    r"(^|[/.:@])("
    r"gpt-5|gpt-6|gpt-oss|o[1-9]($|-)|codex-mini"
    r"|gemini-2\.5|gemini-[3-9]"
    r"|deepseek-(reasoner|r\d)|grok-4|grok-3-mini|grok-code|magistral|qwq|kimi-k2-thinking|glm-(4\.[5-9]|[5-9])|minimax-m"
    r")|[-_](thinking|reasoning|reasoner)([-_:@]|$)",
    re.IGNORECASE,
)
_REASONS_NOT = re.compile(r"non-reasoning|gpt-5[\d.]*-chat", re.IGNORECASE)
#: Models that reason if a request asks for it.
_REASONS_IF_ASKED = re.compile(r"claude|command-a-reasoning|qwen3|nova-", re.IGNORECASE)


class HiddenReasoning:
    """The answer for one target; `learn` changes it."""

    __slots__ = ("_in_spite", "_setting", "_usually", "expected_if_asked")

    def __init__(self, setting: bool | None, upstream: str) -> None:
        self._setting = setting
        self._usually = may_reason(upstream) if setting is None else setting
        self.expected_if_asked = self._usually or (setting is None and _REASONS_IF_ASKED.search(upstream) is not None)
        self._in_spite = False  # in spite of the effort "none"

    def expected(self, effort: str | None) -> bool:
        """Whether a request of this `reasoning_effort` may be charged for reasoning that is not delivered."""
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
