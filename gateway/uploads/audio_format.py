"""The format of audio from its first bytes, for upstreams that answer in another format than the requested one."""

from __future__ import annotations

from gateway.uploads.durations import mp3_frame

LEAST = 12  # bytes that tell every format


def sound_format(head: bytes, *, asked: str = "") -> str:
    """The format by its name in requests; empty if the bytes do not tell.

    Raw samples may begin with the mark of an MP3 or AAC frame, so that mark says nothing where `asked` is pcm.
    """
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "opus"
    if head[:3] == b"ID3":
        return "mp3"
    if asked == "pcm" or len(head) < LEAST:
        return ""
    if head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "aac"
    return "mp3" if mp3_frame(head, 0) is not None else ""
