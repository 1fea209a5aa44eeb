"""The template of text events of dialects whose frames of text differ in nothing but the text of one block.

A dialect gives the frame around its text to `use_template`, and writes the frame of a chunk that has only text with
`text_frame`. The frames of the following chunks of this kind are then written without an object for each. Events that
are passed on as they came have a template of their own (`offer_template`), which is made when it is first used.
"""

from __future__ import annotations

import msgspec

from gateway.billing.usage import text_units
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.schemas.chat_response import ChatChunk, Delta
from gateway.schemas.native_request import NativeChunk

PLACEHOLDER = "\0text\0"  # replaces the text while a template is made

_encode = msgspec.json.Encoder().encode


class TemplatedEncoder(AnswerEncoder):
    """An encoder with one template."""

    __slots__ = ("_after", "_before", "_is_native_template", "_offered", "_plain")

    def __init__(self, form: AnswerForm, *, count: CountAnswer | None = None) -> None:
        super().__init__(form, count=count)
        self._plain: ChatChunk | None = None  # the last chunk, if it had only text for the open block
        self._before = self._after = b""
        self._offered: NativeChunk | None = None  # the last chunk, if its event may become a template
        self._is_native_template = False

    # Written by each dialect -----------------------------------------------------------------------------------------

    def native_text_frame(self, chunk: NativeChunk) -> bytes:
        """The frame of an event with `PLACEHOLDER` in place of its text; empty if its text is not all that it says."""
        return b""

    # For all of them -------------------------------------------------------------------------------------------------

    @property
    def has_own_template(self) -> bool:
        """Whether the template is of frames that are written here."""
        return bool(self._before) and not self._is_native_template

    def use_template(self, frame: bytes, *, is_native: bool = False) -> None:
        """Take the template from a frame with `PLACEHOLDER` as its text."""
        self._before, _, self._after = frame.partition(_encode(PLACEHOLDER))
        self._is_native_template = is_native

    def offer_template(self, chunk: NativeChunk) -> None:
        """Let texts follow an event that was passed on."""
        self._offered = chunk

    def text_frame(self, chunk: ChatChunk, text: str, encoded: bytes) -> bytes:
        """The frame of a chunk that has only `text`."""
        self._last = self._plain = chunk
        self._choices[0].has_content = self.content_started = True
        self.delivered.text_quarter_tokens += len(text) if text.isascii() else text_units(text)
        return b"%b%b%b" % (self._before, encoded, self._after)

    def feed_texts(self, sample: ChatChunk, texts: list[str], below: float) -> bytes:
        if (sample is not self._plain and not self._takes_offer(sample)) or "" in texts:
            return b""
        quarters = self.delivered.text_quarter_tokens
        for text in texts:
            quarters += len(text) if text.isascii() else text_units(text)
        if quarters >= below:
            return b""
        before, after = self._before, self._after
        try:
            if len(texts) == 1:
                frames = b"%b%b%b" % (before, _encode(texts[0]), after)
            else:
                frames = b"".join([b"%b%b%b" % (before, _encode(text), after) for text in texts])
        except UnicodeEncodeError:  # a lone surrogate
            return b""
        self._last, self.delivered.text_quarter_tokens = sample, quarters  # after the encoding, which may raise
        return frames

    def _takes_offer(self, sample: ChatChunk) -> bool:
        offered, self._offered = self._offered, None
        if offered is None or not is_offer(offered, sample):
            return False
        if not (frame := self.native_text_frame(offered)):
            return False
        self.use_template(frame, is_native=True)
        self._plain = offered
        return True


def is_offer(offered: ChatChunk, sample: ChatChunk) -> bool:
    """Whether texts may follow `offered` as a template: it is the chunk of `sample`, and only text."""
    return offered is sample and _is_text(offered)


def _is_text(chunk: ChatChunk) -> bool:
    """Whether a fragment of text for the first choice is all that the chunk has."""
    if len(chunk.choices) != 1:
        return False
    [part] = chunk.choices
    text = part.delta.content
    if type(text) is not str or not text or part.index or part.finish_reason is not None or part.logprobs is not None:
        return False
    return bool(encoded_alone(part.delta, text))


def encoded_alone(delta: Delta, text: str) -> bytes:
    """The text as JSON if the delta has nothing else; empty otherwise, and for a text with a lone surrogate."""
    try:
        encoded = _encode(text)
    except UnicodeEncodeError:
        return b""
    return encoded if _encode(delta) == b'{"content":%b}' % encoded else b""
