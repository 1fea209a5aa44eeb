"""Measures the duration of streamed audio from its bytes.

`AudioMeter(format)` takes each piece with `feed`; `seconds` is the duration of the pieces so far. PCM and WAV are
measured by their byte rate, MP3 and AAC by frames, Ogg by the position in its pages. Sharp edge: the durations inside
FLAC need a decoder, so `exact` is False for FLAC, and for bytes without the expected format or a possible duration.
"""

from __future__ import annotations

from gateway.billing.media_size import WAV_FORMAT, wav_rate
from gateway.uploads.durations import mp3_frame, seven_bits

PCM_RATE = 48_000  # bytes a second: 24 kHz, 16 bits, mono
FLAC_RATE = 28_000  # bytes a second of compressed speech, usually
USUAL_RATE = 8_000  # 64 kbit/s, for bytes that cannot be measured
SLOWEST_RATE = 100  # the lowest possible bytes per second, also against the headers
MAX_HEADER = 4_096  # bytes within which the audio of a WAV begins

_AAC_RATES = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)


class AudioMeter:
    """Measures one audio stream."""

    def __init__(self, format: str) -> None:
        self._exact = format != "flac"
        self._size = 0
        self._seconds = 0.0
        self._rate = {"pcm": PCM_RATE, "flac": FLAC_RATE, "wav": 0}.get(format, USUAL_RATE)
        self._counted = 0  # bytes that the rate applies to
        self._rest = b""  # the start of an incomplete header
        self._skip = 0  # bytes of the current frame that have not arrived
        # Functions and not bound methods, which would make a reference cycle.
        self._feed = {
            "wav": AudioMeter._wav,
            "mp3": AudioMeter._frames,
            "aac": AudioMeter._frames,
            "opus": AudioMeter._pages,
        }.get(format)
        self._frame = _adts_frame if format == "aac" else _mp3_frame

    @property
    def seconds(self) -> float:
        """Seconds of audio so far; by the usual rate if the bytes tell none, or more than they can hold."""
        claimed = self._claimed
        return claimed if 0 < claimed * SLOWEST_RATE <= self._size else self._size / USUAL_RATE

    @property
    def exact(self) -> bool:
        """Whether `seconds` was measured and is not an estimate."""
        return self._exact and 0 < self._claimed * SLOWEST_RATE <= self._size

    @property
    def impossible(self) -> bool:
        """Whether the bytes tell a longer duration than they can hold."""
        return self._claimed * SLOWEST_RATE > self._size

    @property
    def _claimed(self) -> float:
        return self._seconds + (self._counted / self._rate if self._rate else 0.0)

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self._size += len(data)
        if self._feed is None:
            self._counted += len(data)
        else:
            self._feed(self, data)

    def _give_up(self, data: bytes) -> None:
        """Estimate by the usual rate from here on, because the bytes do not have the expected format."""
        self._exact, self._feed = False, None
        self._rate = self._rate or USUAL_RATE
        self._counted += len(data)

    def _wav(self, data: bytes) -> None:
        head = self._rest + data
        at = head.find(b"data", 12)
        if at < 0 or len(head) < at + 8:
            self._rest = head
            if len(head) > MAX_HEADER or not head.startswith(b"RIFF"[: len(head)]):
                self._give_up(head)
            return
        form = head.find(b"fmt ", 12, at)
        self._rate = wav_rate(head[form + 8 : form + 8 + WAV_FORMAT]) if form > 0 else 0
        self._feed, self._rest = None, b""
        if not self._rate:
            self._give_up(head)
        else:
            self._counted += len(head) - at - 8

    def _frames(self, data: bytes) -> None:
        """MP3 and AAC: each frame header has the length and the number of samples."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = self._skip
        while at + 10 <= len(data):
            if data[at : at + 3] == b"ID3":
                at += 10 + seven_bits(data[at + 6 : at + 10])
                continue
            frame = self._frame(data, at)
            if frame is None:
                if data[at : at + 3] != b"TAG":  # a tag of 128 bytes at the end is no audio
                    self._give_up(data[at:])
                return
            length, seconds = frame
            self._seconds += seconds
            at += length
        self._skip = max(0, at - len(data))
        self._rest = data[at:]

    def _pages(self, data: bytes) -> None:
        """Ogg: the last page's granule position, which for Opus counts samples of 48 kHz."""
        data = self._rest + data
        at = data.rfind(b"OggS")
        if at >= 0 and len(data) < at + 14:
            self._rest, data = data[at:], data[:at]
            at = data.rfind(b"OggS")
        else:
            self._rest = data[-3:]
        if at >= 0:
            granule = int.from_bytes(data[at + 6 : at + 14], "little", signed=True)
            self._seconds = max(self._seconds, granule / 48_000)


def _mp3_frame(data: bytes, at: int) -> tuple[int, float] | None:
    frame = mp3_frame(data, at)
    return None if frame is None else (frame.length, frame.samples / frame.sample_rate)


def _adts_frame(data: bytes, at: int) -> tuple[int, float] | None:
    """Bytes and seconds of an AAC frame with its ADTS header."""
    if data[at] != 0xFF or data[at + 1] & 0xF6 != 0xF0:
        return None
    rate, length = data[at + 2] >> 2 & 15, (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
    if rate >= len(_AAC_RATES) or length < 7:
        return None
    return length, (1 + (data[at + 6] & 3)) * 1024 / _AAC_RATES[rate]
