"""One choice of a streamed chat answer: its role chunk, the numbers of its tool calls, its one finish.

A finish reason is no end: some servers send one after every chunk. So the finish is sent when the stream has ended.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from gateway.encoders.chat_form import AnswerForm, call_id, finish_reason
from gateway.schemas.chat_response import ChunkChoice, Delta, FunctionCall, ToolCallDelta, later_reason


class ChoiceEncoder:
    """The state of one choice of a stream."""

    __slots__ = ("finish_reason", "form", "has_content", "index", "opened", "tools")

    def __init__(self, index: int, form: AnswerForm) -> None:
        self.index = index
        self.form = form
        self.finish_reason: str | None = None  # the upstream's last meaningful one
        self.opened = False
        self.has_content = False
        self.tools = _ToolNumbering()

    def feed(self, part: ChunkChoice) -> list[ChunkChoice]:
        """The parts to send for `part`, role first; its finish reason is kept for `finish`."""
        delta = part.delta
        if self.opened and part.finish_reason is None and delta.role is UNSET and not delta.tool_calls:
            # The most frequent case: a fragment of text in an open choice is sent unchanged.
            self.has_content = True
            return [part] if has_content(delta) or part.logprobs is not None else []
        return self._feed_any(part)

    def _feed_any(self, part: ChunkChoice) -> list[ChunkChoice]:
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
        if has_content(delta) or part.logprobs is not None:
            self.has_content = True
            out.append(ChunkChoice(self.index, delta, part.logprobs, None))
        self.finish_reason = later_reason(self.finish_reason, part.finish_reason)
        return out

    def open(self, *, tools: bool) -> list[ChunkChoice]:
        """The role chunk; its content is null if the answer begins with a tool call."""
        self.opened = True
        return [ChunkChoice(self.index, Delta(role="assistant", content=None if tools else "", refusal=None))]

    def finish(self) -> ChunkChoice:
        """The last part; UpstreamInvalidResponse for an unknown reason that ends an empty answer."""
        reason = finish_reason(
            self.finish_reason or "",
            called=self.tools.count > 0,
            has_content=self.has_content,
            legacy=self.form.legacy_functions,
        )
        return ChunkChoice(self.index, finish_reason=reason)


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


def has_content(delta: Delta) -> bool:
    """Whether a delta has more than an empty content."""
    if delta.content:
        return True
    for value in delta.other_parts:  # noqa: SIM110 - on the path of chunks, where a generator costs a frame
        if value is not UNSET and value is not None and value != "":
            return True
    return False


def _legacy(fragments: list[ToolCallDelta]) -> FunctionCall | UnsetType:
    """The fragments of the first call as `function_call`; that form has no field for further calls."""
    first = [fragment.function or FunctionCall() for fragment in fragments if fragment.index == 0]
    if not first:
        return UNSET
    return FunctionCall(name=first[0].name or UNSET, arguments="".join(call.arguments or "" for call in first))
