"""Function calls of a stream that are not complete yet: the Gemini dialect has no fragments of calls."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.encoders.gemini.form import function_call
from gateway.schemas.chat_response import ToolCallDelta


class _OpenCall(Struct):
    """The call that is being made."""

    number: int  # among the calls of its candidate
    id: str
    name: str
    arguments: list[str]
    extra_content: Raw | UnsetType


class OpenCalls:
    """At most one open call of each candidate."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, _OpenCall] = {}

    @property
    def are_open(self) -> bool:
        """Whether there is one."""
        return bool(self._open)

    def add(self, index: int, fragment: ToolCallDelta) -> list[Any]:
        """Take a fragment for candidate `index`; returns the part of the call that another one has ended."""
        call, ended = self._open.get(index), list[Any]()
        function = fragment.function or None
        if call is None or fragment.index != call.number:
            ended = self.take(index)
            number = fragment.index if fragment.index is not UNSET else 0
            name = (function.name or "") if function is not None else ""
            call = self._open[index] = _OpenCall(number, fragment.id or "", name, [], UNSET)
        if function is not None and function.arguments:
            call.arguments.append(function.arguments)
        if fragment.extra_content is not UNSET:
            call.extra_content = fragment.extra_content
        return ended

    def take(self, index: int) -> list[Any]:
        """The part of the open call of candidate `index`, which has ended; empty without one."""
        call = self._open.pop(index, None)
        if call is None:
            return []
        return [function_call(call.id, call.name, "".join(call.arguments), call.extra_content)]
