"""The format and the duration of uploaded audio, from the headers of its container: a few short reads, no decoding.

::

    audio = examine_audio(read, size)        # read(offset, length) -> bytes
    audio.kind, audio.seconds                # "mp3", 61.2; None where the container does not say

WAV, MP3, Ogg (Opus, Vorbis, Speex, FLAC), FLAC, MP4 and WebM are understood, at most `MAX_READS` reads each. Sharp
edge: what headers claim is the caller's word, and only a WAV can be checked. The length of any other is at least its
size over the highest likely rate of its format. It backs holds; a bill takes it only where the upstream says nothing.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable

from msgspec import Struct

from gateway.billing.media_size import MP3_KBITS, WAV_FORMAT, wav_rate

Read = Callable[[int, int], bytes]

MAX_READS = 256
PROBE = 16_384  # bytes from the start in which a kind must show
TAIL = 65_536  # bytes from the end in which the last page of an Ogg lies: a page is shorter

#: Bytes per second of each kind: the lowest possible, and the highest likely.
RATES = {
    "wav": (1_000, 1_536_000),
    "flac": (100, 192_000),  # 48 kHz, 16 bits, stereo, without any gain
    "mp3": (1_000, 40_000),
    "ogg": (300, 64_000),  # 512 kbit/s
    "mp4": (300, 64_000),
    "webm": (300, 64_000),
    "film": (300, 4_000_000),
}

_MP3_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}

# Starts of what people upload by mistake.
_OTHERS = (b"%PDF", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"\x7fELF", b"\x1f\x8b", b"7z\xbc\xaf")
_TEXT_CONTROLS = frozenset(b"\t\n\f\r\x1b")
_WEBM_VIDEO = re.compile(rb"\x86[\x80-\xff]V_")  # a CodecID
_MP4_VIDEO = re.compile(rb"hdlr.{8}vide", re.DOTALL)  # a track's handler
_MP4_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})


class Audio(Struct, frozen=True):
    """A kind, empty where the first bytes do not tell, and seconds where the headers do."""

    kind: str = ""
    seconds: float | None = None


def examine_audio(read: Read, size: int) -> Audio | None:
    """What the bytes are; None for what is plainly something else: text, a picture, an archive."""
    file = _File(read, size)
    head = file.at(0, PROBE)
    skipped = _id3_size(head)
    start = file.at(skipped, PROBE) if skipped else head
    kind = _kind_of(start)
    if not kind:
        return Audio("mp3" if skipped else "") if skipped or not _is_other(head) else None
    try:
        seconds = _READERS[kind](file, start, skipped)
        rates = RATES[_codec(kind, file, start, skipped)]
    except (_Unreadable, struct.error, IndexError, ZeroDivisionError, OverflowError):
        return Audio(kind)
    return Audio(kind, None if seconds is None else _believable(seconds, rates, max(1, size - skipped)))


class _Unreadable(Exception):
    """The headers are not what they should be, or too many."""


class _File:
    """Reads that are counted."""

    def __init__(self, read: Read, size: int) -> None:
        self.size = size
        self._read = read
        self._reads = 0

    def at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer at the end."""
        self._reads += 1
        if self._reads > MAX_READS:
            raise _Unreadable
        return self._read(offset, length) if 0 <= offset < self.size else b""


def _believable(seconds: float, rates: tuple[int, int], size: int) -> float | None:
    """Seconds that `size` bytes can play and are likely to; None where none are claimed."""
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    slowest, fastest = rates
    return min(max(seconds, size / fastest), size / slowest)


def _codec(kind: str, file: _File, start: bytes, at: int) -> str:
    """The kind of which `RATES` has the likely rate: containers of films and of lossless audio have more bytes."""
    if kind == "ogg" and b"\x7fFLAC" in start[:64]:
        return "flac"
    if kind == "webm" and _WEBM_VIDEO.search(start):
        return "film"
    if kind == "mp4" and (movie := _box(file, b"moov", at, file.size)) is not None:
        head = file.at(movie[0], min(TAIL, movie[1] - movie[0]))
        if _MP4_VIDEO.search(head):
            return "film"
        return "flac" if b"alac" in head else kind
    return kind


def _kind_of(start: bytes) -> str:
    if start[:4] in (b"RIFF", b"RF64") and start[8:12] == b"WAVE":
        return "wav"
    for magic, kind in ((b"fLaC", "flac"), (b"OggS", "ogg"), (b"\x1aE\xdf\xa3", "webm")):
        if start.startswith(magic):
            return kind
    if start[4:8] in _MP4_BOXES:
        return "mp4"
    return "mp3" if _first_frame(start) is not None else ""


def _is_other(head: bytes) -> bool:
    return head.startswith(_OTHERS) or _is_text(head[:512])


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # else a character was cut in two
            return False
    return all(byte >= 32 or byte in _TEXT_CONTROLS for byte in head)


# WAV and FLAC --------------------------------------------------------------------------------------------------------


def _wav_seconds(file: _File, start: bytes, at: int) -> float | None:
    """All data chunks by the format's byte rate; decoders play nothing else."""
    rate, audio, at = 0, 0, at + 12
    while at + 8 <= file.size:
        name, length = struct.unpack("<4sI", file.at(at, 8))
        if audio and not (name.isascii() and name.decode().isprintable()):
            break  # padding, or whatever else is no chunk
        at += 8
        left = file.size - at
        if name == b"fmt ":
            rate = wav_rate(file.at(at, min(length, WAV_FORMAT)))
        elif name == b"data":
            # A header written before the end was known claims nothing, or everything.
            length = min(length or left, left)
            audio += length
        at += length + length % 2
    return audio / rate if audio else None


def _flac_seconds(file: _File, start: bytes, at: int) -> float | None:
    return _stream_info_seconds(start[8:])


def _stream_info_seconds(info: bytes) -> float | None:
    """A FLAC STREAMINFO block: 20 bits of sample rate, 8 of other things, 36 of samples."""
    packed = int.from_bytes(info[10:18], "big")
    samples = packed & (1 << 36) - 1
    return samples / (packed >> 44) if samples else None


# MP3 -----------------------------------------------------------------------------------------------------------------


class Frame(Struct, frozen=True):
    """An MP3 frame's header."""

    at: int
    length: int
    samples: int
    sample_rate: int
    bytes_per_second: int
    side_info: int


def _id3_size(head: bytes) -> int:
    """Bytes of a tag before the audio: its size has seven bits a byte."""
    if len(head) < 10 or not head.startswith(b"ID3"):
        return 0
    return 10 + seven_bits(head[6:10]) + (10 if head[5] & 0x10 else 0)


def seven_bits(raw: bytes) -> int:
    """A number of which each byte holds seven bits, as in ID3 tags."""
    size = 0
    for byte in raw:
        size = size << 7 | byte & 0x7F
    return size


def _first_frame(start: bytes) -> Frame | None:
    """The first frame that another one follows, or that is all there is: two in a row are no accident."""
    at = start.find(b"\xff")
    while 0 <= at < len(start) - 4:
        frame = mp3_frame(start, at)
        if frame is not None:
            after = at + frame.length
            if after == len(start) or (after + 4 <= len(start) and mp3_frame(start, after) is not None):
                return frame
        at = start.find(b"\xff", at + 1)
    return None


def mp3_frame(data: bytes, at: int) -> Frame | None:
    """The frame whose header stands at `at`; four bytes of it must be there."""
    second, third = data[at + 1], data[at + 2]
    version, layer, index = second >> 3 & 3, second >> 1 & 3, third >> 4
    if data[at] != 0xFF or second & 0xE0 != 0xE0 or version == 1 or layer != 1:
        return None
    rate = third >> 2 & 3
    if not 0 < index < 15 or rate == 3:
        return None
    mpeg1 = version == 3
    kbits, sample_rate = MP3_KBITS[not mpeg1][index], _MP3_RATES[version][rate]
    samples = 1152 if mpeg1 else 576
    mono = data[at + 3] >> 6 == 3
    side_info = (17 if mono else 32) if mpeg1 else (9 if mono else 17)
    length = samples // 8 * kbits * 1000 // sample_rate + (third >> 1 & 1)
    return Frame(at, length, samples, sample_rate, kbits * 125, side_info)


def _mp3_seconds(file: _File, start: bytes, at: int) -> float | None:
    """The count of frames in a Xing, Info or VBRI header; else as many bytes as the first frame's rate takes."""
    frame = _first_frame(start)
    if frame is None:
        return None
    body = start[frame.at + 4 :]
    xing = body[frame.side_info : frame.side_info + 12]
    frames = 0
    if xing[:4] in (b"Xing", b"Info") and xing[7:8] and xing[7] & 1:
        frames = int.from_bytes(xing[8:12], "big")
    elif body[32:36] == b"VBRI":
        frames = int.from_bytes(body[46:50], "big")
    if frames:
        return frames * frame.samples / frame.sample_rate
    return (file.size - at - frame.at) / frame.bytes_per_second


# Ogg -----------------------------------------------------------------------------------------------------------------


def _ogg_seconds(file: _File, start: bytes, at: int) -> float | None:
    """The granule position of the last page, in samples of the codec's clock."""
    tail = file.at(max(0, file.size - TAIL), TAIL)
    last = tail.rfind(b"OggS")
    if last < 0 or len(tail) < last + 14:
        return None
    granule = int.from_bytes(tail[last + 6 : last + 14], "little")
    packet = start[27 + start[26] :]
    if packet.startswith(b"OpusHead"):
        return (granule - int.from_bytes(packet[10:12], "little")) / 48_000
    for magic, at_rate in ((b"\x01vorbis", 12), (b"Speex   ", 36)):
        if packet.startswith(magic):
            return granule / int.from_bytes(packet[at_rate : at_rate + 4], "little")
    if packet.startswith(b"\x7fFLAC"):
        return _stream_info_seconds(packet[17:])
    return None


# MP4 -----------------------------------------------------------------------------------------------------------------


def _mp4_seconds(file: _File, start: bytes, at: int) -> float | None:
    """`mvhd` in `moov`, which may stand before or behind the audio; of a fragmented file `mehd`, if there is one."""
    movie = _box(file, b"moov", at, file.size)
    if movie is None:
        return None
    header = _box(file, b"mvhd", *movie)
    if header is None:
        return None
    scale, duration = _times(file.at(header[0], 32))
    extends = _box(file, b"mvex", *movie) if not duration else None
    fragments = _box(file, b"mehd", *extends) if extends is not None else None
    if fragments is not None:
        raw = file.at(fragments[0], 12)
        duration = int.from_bytes(raw[4:12] if raw[0] == 1 else raw[4:8], "big")
    return duration / scale if duration else None


def _times(raw: bytes) -> tuple[int, int]:
    """Units per second and the length in them; all ones mean that it is unknown."""
    if raw[0] == 1:
        scale, duration = struct.unpack(">IQ", raw[20:32])
        return scale, 0 if duration == (1 << 64) - 1 else duration
    scale, duration = struct.unpack(">II", raw[12:20])
    return scale, 0 if duration == (1 << 32) - 1 else duration


def _box(file: _File, wanted: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Where the content of the first box of that name begins and ends."""
    while at + 8 <= end:
        raw = file.at(at, 16)
        length, name = struct.unpack(">I4s", raw[:8])
        body = 8
        if length == 1:
            length, body = struct.unpack(">Q", raw[8:16])[0], 16
        elif length == 0:
            length = end - at
        if length < body:
            raise _Unreadable
        if name == wanted:
            return at + body, min(end, at + length)
        at += length
    return None


# WebM ----------------------------------------------------------------------------------------------------------------

_SEGMENT, _INFO, _SCALE, _DURATION, _CLUSTER = 0x18538067, 0x1549A966, 0x2AD7B1, 0x4489, 0x1F43B675


def _webm_seconds(file: _File, start: bytes, at: int) -> float | None:
    """`Duration` in the segment's `Info`; recordings made by browsers have none."""
    outer = _element(file, at, file.size)
    segment = _element(file, outer[2], file.size)
    if segment[0] != _SEGMENT:
        return None
    at = segment[1]
    while at < segment[2]:
        name, body, end = _element(file, at, segment[2])
        if name == _CLUSTER:
            return None
        if name == _INFO:
            return _info_seconds(file, body, end)
        at = end
    return None


def _info_seconds(file: _File, at: int, end: int) -> float | None:
    scale, duration = 1_000_000, None
    while at < end:
        name, body, after = _element(file, at, end)
        if name == _SCALE:
            scale = int.from_bytes(file.at(body, min(8, after - body)), "big")
        elif name == _DURATION:
            form, length = (">f", 4) if after - body == 4 else (">d", 8)
            duration = struct.unpack(form, file.at(body, length))[0]
        at = after
    return None if duration is None else duration * scale / 1e9


def _element(file: _File, at: int, end: int) -> tuple[int, int, int]:
    """An element's id, and where its content begins and ends; one of unknown size goes on to the end."""
    raw = file.at(at, 12)
    if not raw or not raw[0]:
        raise _Unreadable
    width = 9 - raw[0].bit_length()
    name = int.from_bytes(raw[:width], "big")
    if width > 4 or len(raw) <= width or not raw[width]:
        raise _Unreadable
    size_width = 9 - raw[width].bit_length()
    size = int.from_bytes(raw[width : width + size_width], "big") & (1 << 7 * size_width) - 1
    body = at + width + size_width
    unknown = size == (1 << 7 * size_width) - 1
    return name, body, end if unknown else min(end, body + size)


_READERS: dict[str, Callable[[_File, bytes, int], float | None]] = {
    "wav": _wav_seconds,
    "flac": _flac_seconds,
    "mp3": _mp3_seconds,
    "ogg": _ogg_seconds,
    "mp4": _mp4_seconds,
    "webm": _webm_seconds,
}
