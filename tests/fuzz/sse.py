"""Event streams: cut anywhere, they have the events that a reader of the whole stream finds."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from gateway.errors import UpstreamInvalidResponse
from gateway.sse import MAX_EVENT_BYTES, Event, EventParser, FrameTemplate, around, encode_data
from tests.fuzz.choices import Choices
from tests.fuzz.cuts import cuts_of, pieces

READ = 65_536  # bytes
BOM = b"\xef\xbb\xbf"
LINES = (
    b"data: {}", b"data:", b"data", b"data:  x", b'data: {"a":"b"}', b"data: [DONE]", b"data:[DONE]", b": comment",
    b"event: ping", b"event:", b"event", b"id: 1", b"retry: 1", BOM, b"datax: y", b"[DONE]", b" data: z", b"",
)  # fmt: skip
ENDS = (b"\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\r\r", b"", b"\n\r\n")
TEXTS = ('"', "\\", '\\"', "\n\ndata: ", "\ud83d\ude00", "\0probe\0", '"}]', "", '","b":"')
RAW = (b'","x":"', b"\\", b'\\"', b"\n", b"\\u0000", b"\\ud800", b"\xff")


class Stream(Struct, frozen=True):
    """One event stream."""

    lines: list[tuple[bytes, bytes]]
    cuts: list[int]
    huge: bool  # one line that is over the limit


class Frames(Struct, frozen=True):
    """A stream of frames that differ in their text, damaged at some places."""

    first: str
    texts: list[str]
    raw: list[bytes]  # in place of an encoded text
    before: dict[str, str]
    after: dict[str, str]


class SseTarget:
    """`EventParser` and `FrameTemplate`."""

    name = "sse"
    seconds = 1.0

    def make(self, choices: Choices) -> Stream | Frames:
        if choices.one_in(3):
            return frames_of(choices)
        lines = choices.many(lambda: (line_of(choices), choices.of(ENDS)), 20)
        return Stream(lines, cuts_of(choices), choices.one_in(1000))

    def check(self, case: Any) -> None:
        if isinstance(case, Frames):
            check_frames(case)
        else:
            check_stream(case)

    def close(self) -> None:
        """Nothing is kept."""


def line_of(choices: Choices) -> bytes:
    """One line, without its end."""
    return choices.data(10) if choices.one_in(8) else choices.of(LINES)


def frames_of(choices: Choices) -> Frames:
    """Frames of one template."""

    def text() -> str:
        return choices.text(8) if choices.one_in(2) else choices.of(TEXTS)

    before = {name: text() for name in choices.many(lambda: choices.pick("a", "b", "t"), 2)}
    after = {name: text() for name in choices.many(lambda: choices.pick("y", "z"), 2)}
    raw = choices.many(lambda: choices.data(6) if choices.one_in(3) else choices.of(RAW), 2)
    return Frames(text(), choices.many(text, 4, least=1), raw, before, after)


def check_stream(case: Stream) -> None:
    data = b"".join(line + end for line, end in case.lines)
    if case.huge:
        data += b"data: " + b"x" * (MAX_EVENT_BYTES + 2 * READ) + b"\n\n"
    expected = whole(data)
    parser, events = EventParser(), []
    try:
        for piece in reads(data) if case.huge else pieces(data, case.cuts):
            events += parser.feed(piece)
        events += parser.flush()
    except UpstreamInvalidResponse:
        assert case.huge, "a stream within the limits was refused"
        return
    assert not case.huge, "a stream over the limits was read"
    assert events == expected, data


def reads(data: bytes) -> list[bytes]:
    """The stream as a connection reads it, at the most at once."""
    return [data[at : at + READ] for at in range(0, len(data), READ)]


def whole(data: bytes) -> list[Event]:
    """The events of a stream that is known as a whole."""
    *lines, rest = re.split(rb"\r\n|\n|\r", data.removeprefix(BOM))
    if rest.removeprefix(b"data:").strip() == b"[DONE]":
        lines.append(rest)
    events: list[Event] = []
    found: list[bytes] = []
    name = ""
    for line in [*lines, b""]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            found.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
        elif not line:
            joined = b"\n".join(found)
            if joined.strip():
                events.append(Event(joined, name or "message"))
            found, name = [], ""
    return events


def read_text(data: bytes) -> str | None:
    """The text of a frame of this target."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    text = document.get("text") if isinstance(document, dict) else None
    return text if isinstance(text, str) else None


def check_frames(case: Frames) -> None:
    def frame(text: str) -> bytes:
        return msgspec.json.encode({**case.before, "text": text, **case.after})

    try:
        parts = around(Event(frame(case.first)), case.first, read_text)
        datas = [frame(text) for text in case.texts]
    except UnicodeEncodeError:
        return
    if parts is None:
        return
    datas += [frame("~~").replace(b"~~", raw) for raw in case.raw]
    chunk = b"".join(map(encode_data, datas))
    texts = FrameTemplate(*parts).texts(chunk)
    if texts is None:
        return
    parser = EventParser()
    assert texts == [read_text(event.data) for event in parser.feed(chunk)], chunk
