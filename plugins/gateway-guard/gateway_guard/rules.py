"""The rules of a guard: what they find in a text, and the text without it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import re2
from msgspec import Meta, Struct

from .secret_shapes import secrets_in

Action = Literal["mask", "refuse"]
Side = Literal["request", "answer"]

_options = re2.Options()
_options.log_errors = False
_options.max_mem = 8 << 20  # bytes of one pattern


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One entry of `rules`: a pattern in RE2's syntax, which takes time in proportion to the text."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,40}$")]
    pattern: Annotated[str, Meta(min_length=1, max_length=2000)]
    action: Action = "mask"
    sides: tuple[Side, ...] = ("request", "answer")
    mask: str = ""  # what replaces a match; by default the mask of the guard


class Found(Exception):
    """A text has what a rule refuses."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class Compiled:
    """One rule, compiled."""

    def __init__(self, rule: Rule, mask: str) -> None:
        try:
            self.pattern: Any = re2.compile(rule.pattern, _options)
        except re2.error as error:
            text = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
            raise ValueError(f"the pattern of rule {rule.name} is not one of RE2: {text}") from None
        self.name, self.action, self.sides = rule.name, rule.action, rule.sides
        self.mask = rule.mask or mask


class Guard:
    """The rules of one side."""

    def __init__(self, rules: Sequence[Compiled], *, secrets: str, mask: str, side: Side) -> None:
        self._rules = [rule for rule in rules if side in rule.sides]
        self._secrets, self._mask = secrets, mask

    def clean(self, text: str, stop: threading.Event) -> str:
        """The text with masks; Found if a rule refuses it."""
        if self._secrets != "off":
            spans = _merged(secrets_in(text, stop))
            if spans and self._secrets == "refuse":
                raise Found("secrets")
            for start, end in reversed(spans):
                text = text[:start] + self._mask + text[end:]
        for rule in self._rules:
            if rule.action == "refuse":
                if rule.pattern.search(text):
                    raise Found(rule.name)
            elif rule.pattern.search(text):
                text = rule.pattern.sub(lambda _, rule=rule: rule.mask, text)
        return text

    def check_part(self, before: str, text: str, stop: threading.Event) -> None:
        """Found if a match ends in `text`, which follows `before`: a part of a stream cannot be masked."""
        whole, least = before + text, len(before)
        if self._secrets != "off" and any(end > least for _, end in secrets_in(whole, stop)):
            raise Found("secrets")
        for rule in self._rules:
            if any(match.end() > least for match in rule.pattern.finditer(whole)):
                raise Found(rule.name)


def _merged(spans: Any) -> list[tuple[int, int]]:
    """Spans that do not overlap, in their order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
