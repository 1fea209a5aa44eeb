"""What Gemini answers, as far as the gateway reads it: one shape for whole answers and for the frames of a stream.

`read_answer(data)` decodes either and raises what an error document amounts to; `read_whole` wants an answer in it, and
takes a stream that came whole, as events or as an array.
Sharp edge: `index` is left out for the first candidate, and empty lists, texts and zeros are left out everywhere, as
protocol buffers do in JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.sse import DONE_DATA

from .._shared.documents import UNREADABLE
from .._shared.fitting import fitted
from .._shared.google_errors import error_in_answer
from .._shared.whole_stream import events_of, is_event_stream


class Blob(Struct, rename="camel", gc=False):
    """Bytes as base64, with their media type."""

    mime_type: str = ""
    data: str = ""


class WireCall(Struct, gc=False):
    """A function call; `args` is an object."""

    id: str | None = None
    name: str = ""
    args: Raw | UnsetType = UNSET


class WirePart(Struct, rename="camel", gc=False):
    """A piece of an answer; parts of other kinds come only when asked for, and then they are empty here."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: WireCall | None = None
    inline_data: Blob | None = None


class WireContent(Struct):
    """The parts of a candidate."""

    parts: list[WirePart] | None = None


class LogProb(Struct, rename="camel", gc=False):
    """A token and the logarithm of its probability."""

    token: str = ""
    log_probability: float = 0.0


class TopCandidates(Struct):
    """What else might have stood in one place."""

    candidates: list[LogProb] | None = None


class LogProbs(Struct, rename="camel"):
    """The chosen tokens, and the alternatives to each."""

    chosen_candidates: list[LogProb] | None = None
    top_candidates: list[TopCandidates] | None = None


class WireCandidate(Struct, rename="camel"):
    """One choice, or what a frame adds to it."""

    index: int | None = None
    content: WireContent | None = None
    finish_reason: str | None = None
    logprobs_result: LogProbs | None = None
    grounding_metadata: Any = None

    @property
    def parts(self) -> list[WirePart]:
        """Its parts; none is usual at the end."""
        return (self.content.parts or []) if self.content is not None else []


class PromptFeedback(Struct, rename="camel"):
    """Why a prompt was not answered."""

    block_reason: str | None = None


class WireAnswer(Struct, rename="camel"):
    """A whole answer, or one frame of a stream."""

    candidates: list[WireCandidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: Any = None
    error: Any = UNSET

    @property
    def numbered(self) -> list[tuple[int, WireCandidate]]:
        """The candidates with the index of each, which is its place where none is given."""
        return [(place if one.index is None else one.index, one) for place, one in enumerate(self.candidates or ())]

    @property
    def block_reason(self) -> str | None:
        """Why the prompt was blocked, if it was."""
        return self.prompt_feedback.block_reason if self.prompt_feedback is not None else None


_decoder = msgspec.json.Decoder(WireAnswer)
_arrays = msgspec.json.Decoder(list[Raw])


def read_answer(data: bytes, hidden: Sequence[str] = ()) -> WireAnswer:
    """The answer in `data`; raises the error it holds, or UpstreamInvalidResponse when it is none."""
    try:
        answer = _decoder.decode(data)
    except UNREADABLE:
        answer = _read_unusual(data, hidden)
    return checked(answer, data, hidden)


def usual_answer(data: bytes) -> WireAnswer:
    """The answer in a document of Google's shape; one of `UNREADABLE` for any other, as with a lone surrogate."""
    return _decoder.decode(data)


def checked(answer: WireAnswer, data: bytes, hidden: Sequence[str]) -> WireAnswer:
    """The answer in `data`; raises the error it holds."""
    if answer.error is not UNSET and answer.error:
        raise error_in_answer(data, hidden) or UpstreamInvalidResponse(detail="an error without words")
    return answer


def read_whole(data: bytes, hidden: Sequence[str] = ()) -> WireAnswer:
    """The same for a document that must be a whole answer: one that answers nothing is none."""
    frames = _frames(data)
    answer = read_answer(data, hidden) if frames is None else _joined([read_answer(frame, hidden) for frame in frames])
    for one in answer.candidates or ():
        if one.finish_reason is None and one.parts:
            one.finish_reason = "STOP"  # a document is whole, also where it does not say so
    if not answer.candidates and answer.block_reason is None:
        raise UpstreamInvalidResponse(detail="an answer without candidates")
    return answer


def _read_unusual(data: bytes, hidden: Sequence[str]) -> WireAnswer:
    """The answer in a document that is not of Google's shape, as far as it can be read."""
    # Errors may come as an array of one. In a local variable it would be held by its own traceback's frame.
    if error_in_answer(data, hidden) is not None:
        raise error_in_answer(data, hidden) or UpstreamInvalidResponse()
    try:
        return fitted(data, WireAnswer, surrogates=True)
    except UNREADABLE as error:
        raise UpstreamInvalidResponse(detail=f"{type(error).__name__}: {error}"[:300]) from None


def _frames(data: bytes) -> list[bytes] | None:
    """The frames of a stream that came as one body; None for a document."""
    if is_event_stream(data):
        return [event.data for event in events_of(data) if event.data != DONE_DATA]
    if data[:1] != b"[":
        return None
    try:
        frames = [bytes(frame) for frame in _arrays.decode(data)]
    except UNREADABLE:
        return None
    return frames or None


def _joined(frames: list[WireAnswer]) -> WireAnswer:
    """The frames as one answer; UpstreamTruncated if one of its candidates has no end."""
    whole = WireAnswer()
    candidates: dict[int, WireCandidate] = {}
    for frame in frames:
        whole.prompt_feedback = frame.prompt_feedback or whole.prompt_feedback
        whole.usage_metadata = frame.usage_metadata or whole.usage_metadata
        for index, new in frame.numbered:
            one = candidates.setdefault(index, WireCandidate(index))
            one.content = WireContent([*one.parts, *new.parts])
            one.finish_reason = new.finish_reason or one.finish_reason
            one.logprobs_result = new.logprobs_result or one.logprobs_result
            one.grounding_metadata = new.grounding_metadata or one.grounding_metadata
    if any(one.finish_reason is None for one in candidates.values()):
        raise UpstreamTruncated()
    whole.candidates = list(candidates.values())
    return whole
