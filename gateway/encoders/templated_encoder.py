"""The short way of dialects whose frames of text differ in nothing but the text of one block.

A dialect gives the frame around its text to `use_template`, and writes the frame of a chunk that has only text with
`text_frame`. The frames of the following chunks of this kind are then written without an object for each.
"""

from __future__ import annotations

import msgspec

from gateway.billing.usage import text_units
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.schemas.chat_response import ChatChunk, Delta

PLACEHOLDER = "\0text\0"  # replaces the text while a template is made

_encoder = msgspec.json.Encoder()


class TemplatedEncoder(AnswerEncoder):
    """An encoder with one template."""

    __slots__ = ("_after", "_before", "_plain")

    def __init__(self, form: AnswerForm, *, count: CountAnswer | None = None) -> None:
        super().__init__(form, count=count)
        self._plain: ChatChunk | None = None  # the last chunk, if it had only text for the open block
        self._before = self._after = b""

    def use_template(self, frame: bytes) -> None:
        """Take the template from a frame with `PLACEHOLDER` as its text."""
        self._before, _, self._after = frame.partition(_encoder.encode(PLACEHOLDER))

    def text_frame(self, chunk: ChatChunk, text: str, encoded: bytes) -> bytes:
        """The frame of a chunk that has only `text`."""
        self._last = self._plain = chunk
        self._choices[0].has_content = self.content_started = True
        self.delivered.text_quarter_tokens += len(text) if text.isascii() else text_units(text)
        return b"%b%b%b" % (self._before, encoded, self._after)

    def feed_texts(self, like: ChatChunk, texts: list[str], below: float) -> bytes:
        if like is not self._plain or "" in texts:
            return b""
        quarters = self.delivered.text_quarter_tokens
        for text in texts:
            quarters += len(text) if text.isascii() else text_units(text)
        if quarters >= below:
            return b""
        before, after = self._before, self._after
        try:
            frames = b"".join([b"%b%b%b" % (before, _encoder.encode(text), after) for text in texts])
        except UnicodeEncodeError:  # a lone surrogate
            return b""
        self._last, self.delivered.text_quarter_tokens = like, quarters  # after the encoding, which may raise
        return frames


def encoded_alone(delta: Delta, text: str) -> bytes:
    """The text as JSON if the delta has nothing else; empty otherwise, and for a text with a lone surrogate."""
    try:
        encoded = _encoder.encode(text)
    except UnicodeEncodeError:
        return b""
    return encoded if _encoder.encode(delta) == b'{"content":%b}' % encoded else b""
