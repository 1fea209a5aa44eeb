"""Which call a fragment of a streamed tool call belongs to, for servers that do not say it as OpenAI does.

OpenAI numbers calls with `index` and writes id and name once. Others leave the index out or always write 0, write no
ids, a new id in each fragment, the name again, or all arguments so far again. `CallNumbers.numbered(fragments)`
gives each fragment the index of its call and leaves the id to the first one. Sharp edge: nothing is sent of a call
before its name is known, because clients cannot take it later; `nameless` gives what still waits at the end.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from gateway import FunctionCall, ToolCallDelta

_AFTER_TEXT = frozenset(":,}] \t\r\n") | {""}
MAX_CHECKS = 32  # of one call, because each reads all its arguments


class _Call:
    """One call, as far as it is known."""

    __slots__ = ("arguments", "checks", "extra_content", "id", "index", "is_sent", "name", "repeats", "size")

    def __init__(self, index: int, fragment: ToolCallDelta) -> None:
        self.index = index
        self.id = fragment.id or ""
        self.name = ""
        self.arguments: list[str] = []
        self.size = 0  # characters of the arguments
        self.checks = 0  # how often they were not whole
        self.extra_content = fragment.extra_content
        self.is_sent = False
        self.repeats = False  # its fragments begin with all that went before

    def add(self, text: str) -> None:
        """Add to the arguments."""
        self.arguments.append(text)
        self.size += len(text)

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are a whole JSON document; False after many times that they were not."""
        if self.checks >= MAX_CHECKS or not self.arguments or not self.arguments[-1].rstrip().endswith(("}", "]")):
            return False
        try:
            msgspec.json.decode("".join(self.arguments))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            self.checks += 1
            return False
        return True


class CallNumbers:
    """The tool calls of one choice."""

    __slots__ = ("_calls", "_open")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._open: dict[int, _Call] = {}  # the newest call by the upstream's index

    def numbered(self, fragments: list[ToolCallDelta]) -> list[ToolCallDelta]:
        """The fragments to send, each with the index of its call."""
        if len(fragments) == 1 and self._goes_on_plainly(fragments[0]):
            return fragments
        return [fragment for fragment in fragments if self._take(fragment)]

    def nameless(self) -> list[ToolCallDelta]:
        """The calls whose name has not come, at the end of the stream."""
        return [_first(call) for call in self._calls if not call.is_sent]

    def _goes_on_plainly(self, fragment: ToolCallDelta) -> bool:
        """Whether this is the most frequent case: OpenAI's own form, with more arguments of a call and nothing else."""
        call, function = self._open.get(fragment.index), fragment.function  # type: ignore[arg-type]
        if call is None or fragment.id or not function or function.name or not call.is_sent:
            return False
        text = function.arguments
        if not text or text[0] == "{":
            return False
        call.arguments.append(text)
        call.size += len(text)
        fragment.index = call.index
        return True

    def _take(self, fragment: ToolCallDelta) -> bool:
        call = self._call_of(fragment)
        if call is None:
            call = self._begun(fragment)
        elif fragment.custom:
            fragment.id = UNSET
        elif not _goes_on(call, fragment):
            return False
        fragment.index = call.index
        return call.is_sent

    def _call_of(self, fragment: ToolCallDelta) -> _Call | None:
        """The call that the fragment goes on with; None if it begins one."""
        id = fragment.id or ""
        call = (
            self._open.get(fragment.index) if fragment.index is not UNSET else self._calls[-1] if self._calls else None
        )
        if id and (call is None or call.id != id):
            known = [one for one in self._calls if one.id == id]
            if known:
                return known[-1]
        if call is None or (fragment.index is UNSET and id and id != call.id):
            return None
        name = (fragment.function.name or "") if fragment.function else ""
        return None if _is_another(call, id, name, fragment) else call

    def _begun(self, fragment: ToolCallDelta) -> _Call:
        call = _Call(len(self._calls), fragment)
        self._open[fragment.index if fragment.index is not UNSET else call.index] = call
        self._calls.append(call)
        if fragment.function:
            call.name = fragment.function.name or ""
            if fragment.function.arguments:
                call.add(fragment.function.arguments)
        call.is_sent = bool(call.name or fragment.custom or fragment.type == "custom")
        return call


def _first(call: _Call) -> ToolCallDelta:
    """All that has come of a call, as its first fragment."""
    call.is_sent = True
    function = FunctionCall(call.name, "".join(call.arguments))
    return ToolCallDelta(call.index, call.id, "function", function, extra_content=call.extra_content)


def _is_another(call: _Call, id: str, name: str, fragment: ToolCallDelta) -> bool:
    """Whether a fragment at the index of `call` begins another call."""
    if fragment.custom:
        return bool(id and id != call.id and fragment.custom.name)
    if not name or not call.name or (id and id == call.id):
        return False  # a call begins with its name
    if id and call.id and name != call.name:
        return True
    begins = ((fragment.function.arguments or "") if fragment.function else "").lstrip()
    if not call.arguments:
        return bool(id and call.id)
    return (name != call.name or not begins or begins.startswith("{")) and call.is_whole


def _goes_on(call: _Call, fragment: ToolCallDelta) -> bool:
    """Add the fragment to its call; False if it says nothing new."""
    fragment.id = UNSET
    function = fragment.function
    if not function:
        return True
    if text := function.arguments:
        new = _new_part(call, text)
        if not new:
            return False
        function.arguments = new
        call.add(new)
    call.name = call.name or function.name or ""
    if call.name and not call.is_sent:
        first = _first(call)
        fragment.id, fragment.function, fragment.extra_content = first.id, first.function, first.extra_content
    return True


def _new_part(call: _Call, text: str) -> str:
    """What `text` adds to the arguments; a server may repeat in each fragment all that went before."""
    if not 0 < call.size <= len(text) or not text.startswith("{"):
        return text
    before = "".join(call.arguments)
    if not text.startswith(before):
        return text
    if not (call.repeats or _cannot_go_on(before, text) or (text == before and call.is_whole)):
        return text
    call.repeats = True
    return text[len(before) :]


def _cannot_go_on(before: str, text: str) -> bool:
    """Whether JSON that began with `before` cannot go on with its own beginning.

    It can where a value begins, and in a text: there `{"` is the end of the text, and what may follow an end follows.
    """
    return not (before.rstrip().endswith((":", ",", "[")) or (text[1:2] == '"' and text[2:3] in _AFTER_TEXT))
