"""Samples in, utterances out: a voice detector cuts the audio at its pauses, the decoder writes down each stretch.

Sharp edge: a stretch without a pause is cut after `LONGEST` seconds, in the middle of a word if need be, for what the
decoder keeps in mind grows with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pocketsphinx import Decoder, Endpointer

from .audio import RATE
from .frames import Spoken, Utterance

LONGEST = 30.0  # seconds of speech without a pause
PER_SECOND = 100  # frames of the decoder
MARKS = ("<", "[", "+")  # begin what is no word: silence, noise, breath


class Recogniser:
    """The decoder with its English model, which takes half a second to load."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=RATE, loglevel="FATAL")
        self._usual = self._decoder.get_cmn()
        self.heard = 0.0  # seconds, of the audio under way

    def utterances(self, blocks: Iterable[bytes]) -> Iterator[Utterance]:
        """What is said in them, as soon as each stretch of speech ends."""
        self._decoder.set_cmn(self._usual)  # forgets how the last speaker's room sounded
        self.heard = 0.0
        began: float | None = None
        try:
            for at, speech, goes_on in self._speech(blocks):
                if began is None:
                    began = at
                    self._decoder.start_utt()
                self._decoder.process_raw(speech)
                if not goes_on or at - began > LONGEST:
                    self._decoder.end_utt()
                    yield from self._utterance(began)
                    began = None
        finally:
            if began is not None:
                self._decoder.end_utt()  # of a file that breaks off

    def _speech(self, blocks: Iterable[bytes]) -> Iterator[tuple[float, bytes, bool]]:
        """Frames in which somebody speaks: each with its time, and whether the speech goes on after it."""
        endpointer, at = Endpointer(sample_rate=RATE), 0.0
        for frame, is_last in _frames(blocks, endpointer.frame_bytes):
            self.heard += len(frame) / (2 * RATE)
            was_speech = endpointer.in_speech
            if is_last and not was_speech:
                return
            speech = endpointer.end_stream(frame) if is_last else endpointer.process(frame)
            if speech:
                at = at if was_speech else endpointer.speech_start  # which is earlier than now
                yield at, speech, endpointer.in_speech and not is_last
                at += len(speech) / (2 * RATE)

    def _utterance(self, began: float) -> Iterator[Utterance]:
        """What the decoder made of the last stretch, if there was a word in it."""
        words = [
            Spoken(segment.word.partition("(")[0], *self._span(segment.start_frame, segment.end_frame, began))
            for segment in self._decoder.seg() or ()
            if not segment.word.startswith(MARKS)
        ]
        if words:
            yield Utterance(words[0].start, words[-1].end, words)

    def _span(self, first: int, last: int, began: float) -> tuple[float, float]:
        start, end = (began + frame / PER_SECOND for frame in (first, last + 1))
        start = min(start, self.heard)
        return round(start, 2), round(max(start, min(end, self.heard)), 2)


def _frames(blocks: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """The same bytes in frames of one size, the last of which may be shorter and is marked."""
    rest = b""
    for block in blocks:
        rest += block
        whole = (len(rest) - 1) // size * size  # one byte at least stays for the last
        for at in range(0, whole, size):
            yield rest[at : at + size], False
        rest = rest[max(whole, 0) :]
    if rest:
        yield rest, True
