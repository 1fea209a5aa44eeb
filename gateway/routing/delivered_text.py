"""The text that a stream has delivered, in case another target must go on with it.

`note` is called for each chunk but those of the text fast path, which extends `fast` itself. Sharp edge: texts are put
together by `note` alone, so the fast path lets a chunk pass it now and then, and the limit holds roughly.
"""

from __future__ import annotations

from msgspec import UNSET, Raw

from gateway.schemas.answer_surrogates import ends_in_high_surrogate, whole
from gateway.schemas.chat_response import ChatChunk

MAX_TEXT = 1 << 20  # characters that are kept; a longer answer stays cut
EMPTY: tuple[object, ...] = ("", [], Raw(b"[]"))  # as some servers send with every chunk
MANY = 512  # texts that are then put together


class DeliveredText:
    """What was delivered of one answer."""

    __slots__ = ("fast", "fast_chunks", "finish", "has_more", "has_reasoning", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fast: list[str] = []  # those of the fast path since the last chunk beside it
        self.fast_chunks = 0  # before those
        self.has_reasoning = False
        self.has_more = False  # than one text that can be compared: a tool call, a second choice, too much text
        self.finish = ""  # the reason of the finish that has come

    def note(self, chunk: ChatChunk) -> None:
        """A chunk that will be delivered."""
        self.take_fast()
        for part in chunk.choices:
            delta = part.delta
            if part.finish_reason is not None:
                self.finish = part.finish_reason
            if part.index or any(value is not UNSET and value is not None for value in delta.other_parts):
                self._note_other(part.index, reasoning=bool(delta.reasoning_content), parts=delta.other_parts[1:])
            if delta.content:
                self.texts.append(delta.content)
        if len(self.texts) > MANY:
            self.put_together()

    def _note_other(self, index: int, *, reasoning: bool, parts: tuple[object, ...]) -> None:
        self.has_reasoning = self.has_reasoning or reasoning
        if index or any(value is not UNSET and value is not None and value not in EMPTY for value in parts):
            self.has_more = True

    def take_fast(self) -> int:
        """Move the texts of the fast path to the others; returns how many chunks it has delivered."""
        self.texts += self.fast
        self.fast_chunks += len(self.fast)
        self.fast.clear()
        return self.fast_chunks

    def put_together(self) -> None:
        """Make one text of many; nothing is kept of too long a text."""
        text = "".join(self.texts)
        if len(text) > MAX_TEXT:
            self.has_more, text = True, ""
        self.texts[:] = [text]

    @property
    def text(self) -> str:
        """The text that the caller has; empty if it cannot be joined with anything."""
        self.take_fast()
        text = "".join(self.texts)
        if self.has_more or len(text) > MAX_TEXT:
            return ""
        return whole(text[:-1] if ends_in_high_surrogate(text) else text)
