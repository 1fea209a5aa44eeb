"""Samples in, utterances out: a voice detector cuts the sound at its pauses, the decoder writes down each stretch.

Sharp edge: a stretch without a pause is cut after `LONGEST` seconds, in the middle of a word if need be, for what the
decoder keeps in mind grows with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pocketsphinx import Decoder, Endpointer

from .frames import Spoken, Utterance
from .sound import RATE

LONGEST = 30.0  # seconds of speech without a pause
PER_SECOND = 100  # frames of the decoder
MARKS = ("<", "[", "+")  # begin what is no word: silence, noise, breath


class Recogniser:
    """The decoder with its English model, which takes half a second to load."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=RATE, loglevel="FATAL")
        self.heard = 0.0  # seconds, of the sound under way

    def utterances(self, blocks: Iterable[bytes]) -> Iterator[Utterance]:
        """What is said in them, as soon as each stretch of speech ends."""
        endpointer = Endpointer(sample_rate=RATE)
        self.heard, begun = 0.0, None
        for frame, is_last in _frames(blocks, endpointer.frame_bytes):
            self.heard += len(frame) / (2 * RATE)
            if not is_last:
                speech = endpointer.process(frame)
            else:
                speech = endpointer.end_stream(frame) if endpointer.in_speech else None
            if speech:
                if begun is None:
                    begun = max(0.0, self.heard - len(speech) / (2 * RATE))
                    self._decoder.start_utt()
                self._decoder.process_raw(speech)
            if begun is not None and (is_last or not endpointer.in_speech or self.heard - begun > LONGEST):
                self._decoder.end_utt()
                yield from self._utterance(begun)
                begun = None

    def _utterance(self, begun: float) -> Iterator[Utterance]:
        """What the decoder made of the last stretch, if there was a word in it."""
        words = [
            Spoken(segment.word.partition("(")[0], *self._span(segment.start_frame, segment.end_frame, begun))
            for segment in self._decoder.seg() or ()
            if not segment.word.startswith(MARKS)
        ]
        if words:
            yield Utterance(words[0].start, words[-1].end, words)

    def _span(self, first: int, last: int, begun: float) -> tuple[float, float]:
        start, end = (min(begun + frame / PER_SECOND, self.heard) for frame in (first, last + 1))
        return round(start, 2), round(end, 2)


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
