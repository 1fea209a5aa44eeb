"""One choice of a streamed chat answer: its role chunk, the numbers of its tool calls, its one finish."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from gateway.encoders.chat_form import AnswerForm, call_id, finish_reason
from gateway.schemas.chat_response import ChunkChoice, Delta, FunctionCall, ToolCallDelta


class ChoiceEncoder:
    """The state of one choice of a stream."""

    __slots__ = ("finish_reason", "form", "has_content", "index", "opened", "tools")

    def __init__(self, index: int, form: AnswerForm) -> None:
        self.index = index
        self.form = form
        self.finish_reason: str | None = None
        self.opened = False
        self.has_content = False
        self.tools = _ToolNumbering()

    def feed(self, part: ChunkChoice) -> list[ChunkChoice]:
        """The parts to send for `part`: role first, finish in its own chunk."""
        delta = part.delta
        if (
            self.opened
            and part.finish_reason is None
            and delta.role is UNSET
            and not delta.tool_calls
            and self.finish_reason is None
        ):
            # The most frequent case: a fragment of text in an open choice is sent unchanged.
            self.has_content = True
            return [part] if _has_content(delta) or part.logprobs is not None else []
        return self._feed_any(part)

    def _feed_any(self, part: ChunkChoice) -> list[ChunkChoice]:
        if self.finish_reason is not None:
            return []
        out: list[ChunkChoice] = []
        delta = part.delta
        delta.role = UNSET
        if delta.tool_calls is None:
            delta.tool_calls = UNSET
        if not self.opened:
            out += self.open(tools=bool(delta.tool_calls))
        if delta.tool_calls:
            delta.tool_calls = self.tools.number(delta.tool_calls)
        if self.form.legacy_functions and delta.tool_calls:
            delta.function_call, delta.tool_calls = _legacy(delta.tool_calls), UNSET
        if _has_content(delta) or part.logprobs is not None:
            self.has_content = True
            out.append(ChunkChoice(self.index, delta, part.logprobs, None))
        if part.finish_reason is not None:
            out.append(self._finish(part.finish_reason))
        return out

    def open(self, *, tools: bool) -> list[ChunkChoice]:
        """The role chunk; its content is null if the answer begins with a tool call."""
        self.opened = True
        return [ChunkChoice(self.index, Delta(role="assistant", content=None if tools else "", refusal=None))]

    def _finish(self, reason: str) -> ChunkChoice:
        called = self.tools.count > 0
        self.finish_reason = finish_reason(
            reason, called=called, has_content=self.has_content, legacy=self.form.legacy_functions
        )
        return ChunkChoice(self.index, finish_reason=self.finish_reason)


class _ToolNumbering:
    """Numbers tool calls from 0 in the order of their first fragments, and names each only once."""

    __slots__ = ("_open", "count")

    def __init__(self) -> None:
        self.count = 0
        self._open: dict[int, tuple[int, str]] = {}  # upstream index → our index, upstream id

    def number(self, fragments: list[ToolCallDelta]) -> list[ToolCallDelta]:
        return [self._one(fragment) for fragment in fragments]

    def _one(self, fragment: ToolCallDelta) -> ToolCallDelta:
        upstream_index = fragment.index if fragment.index is not UNSET else self._guess(fragment)
        known = self._open.get(upstream_index)
        if known is None or (fragment.id and known[1] and fragment.id != known[1]):
            return self._start(upstream_index, fragment)
        fragment.index = known[0]
        fragment.id = fragment.type = UNSET
        if fragment.function:
            fragment.function.name = UNSET
            fragment.function.arguments = fragment.function.arguments or ""
        return fragment

    def _guess(self, fragment: ToolCallDelta) -> int:
        # Without an index, a fragment with an id starts a call, and one without an id belongs to the newest call.
        newest = max(self._open, default=0)
        return newest + 1 if fragment.id and self._open else newest

    def _start(self, upstream_index: int, fragment: ToolCallDelta) -> ToolCallDelta:
        upstream_id = fragment.id or ""
        self._open[upstream_index] = (self.count, upstream_id)
        fragment.index, self.count = self.count, self.count + 1
        fragment.id = call_id(upstream_id)
        fragment.type = "custom" if fragment.custom else "function"
        if not fragment.custom:
            function = fragment.function or FunctionCall()
            fragment.function = FunctionCall(name=function.name or "", arguments=function.arguments or "")
        return fragment


def _has_content(delta: Delta) -> bool:
    """Whether a delta has more than an empty content."""
    if delta.content:
        return True
    return any(value is not UNSET and value is not None and value != "" for value in delta.other_parts)


def _legacy(fragments: list[ToolCallDelta]) -> FunctionCall | UnsetType:
    """The fragments of the first call as `function_call`; that form has no field for further calls."""
    first = [fragment.function or FunctionCall() for fragment in fragments if fragment.index == 0]
    if not first:
        return UNSET
    return FunctionCall(name=first[0].name or UNSET, arguments="".join(call.arguments or "" for call in first))
