"""Event streams as real servers write them, in pieces of every size."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import UpstreamInvalidResponse
from gateway.sse import COMMENT_KEEPALIVE, DONE, MAX_EVENT_BYTES, Event, EventParser, FrameTemplate, around, encode_data
from tests.quick import examples


def events_of(*pieces: bytes) -> list[Event]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.flush()


def data_of(*pieces: bytes) -> list[bytes]:
    return [event.data for event in events_of(*pieces)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data:1\n\ndata:2\n\n", [b"1", b"2"]),
        (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
        (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
        (b"data: 1\r\n\ndata: 2\n\r\n", [b"1", b"2"]),
        (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
        (b": hello\n\ndata: 1\n\n: OPENROUTER PROCESSING\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data: 1\n: in between\ndata: 2\n\n", [b"1\n2"]),
        (b'data: {"a":\ndata: 1}\n\n', [b'{"a":\n1}']),
        (b"\n\n\n\ndata: 1\n\n\n\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"id: 7\nretry: 10\ndata: 1\n\n", [b"1"]),
        (b"id: 7\n\n", []),
        (b"data:\n\ndata: \n\ndata\n\ndata: 1\n\n", [b"1"]),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"data: a:b: c\n\n", [b"a:b: c"]),
        (b"nonsense\n\ndata: 1\n\n", [b"1"]),
        (b"data: 1\n\ndata: [DONE]\n", [b"1", b"[DONE]"]),
        (b"data: 1\n\ndata: [DONE]", [b"1", b"[DONE]"]),
        (b'data: 1\n\ndata: {"half', [b"1"]),
        (b"data: 1\n\ndata: 2\n", [b"1", b"2"]),
        (b"", []),
    ],
)
def test_streams_parsed_whole_and_byte_by_byte_are_equal(raw: bytes, expected: list[bytes]) -> None:
    assert data_of(raw) == expected
    assert data_of(*(raw[n : n + 1] for n in range(len(raw)))) == expected


def test_event_names_are_read_and_reset_after_each_event() -> None:
    events = events_of(b"event: error\ndata: 1\n\ndata: 2\n\nevent: ping\n\ndata: 3\n\n")
    assert events == [Event(b"1", "error"), Event(b"2"), Event(b"3")]


def test_encoded_events_are_parsed_back() -> None:
    assert data_of(COMMENT_KEEPALIVE, encode_data(b'{"a":1}'), DONE) == [b'{"a":1}', b"[DONE]"]


@pytest.mark.parametrize("part", [b"x" * 65536, b"data: y\n" + b"data: " + b"x" * 65536 + b"\n"])
def test_a_line_or_event_without_end_is_refused(part: bytes) -> None:
    parser = EventParser()
    with pytest.raises(UpstreamInvalidResponse):
        for _ in range(2 * MAX_EVENT_BYTES // len(part)):
            parser.feed(part)


def test_a_line_just_under_the_limit_is_accepted() -> None:
    line = b"data: " + b"x" * (MAX_EVENT_BYTES - 10)
    assert len(data_of(*(line[n : n + 65536] for n in range(0, len(line), 65536)), b"\n\n")[0]) == MAX_EVENT_BYTES - 10


lines = st.sampled_from(
    [b"data: {}", b"data:{}", b"data", b"data: ", b": c", b"event: e", b"id: 1", b"", b"", b"junk", b"data: [DONE]"]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=30), st.data())
def test_stream_parses_the_same_for_any_split(parts: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    raw = b"".join(line + end for line, end in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert events_of(*pieces) == events_of(raw) == events_of(*(raw[n : n + 1] for n in range(len(raw))))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=12))
def test_any_bytes_parse_or_are_refused(pieces: list[bytes]) -> None:
    for event in events_of(*pieces):
        assert event.data.strip()


def test_empty_piece_inside_a_crlf_adds_no_line_end() -> None:
    """What aiohttp never sends, but hypothesis did."""
    assert data_of(b"data: 1\r", b"", b"\ndata: 2\r\n\r\n") == [b"1\n2"]


BEFORE, AFTER = b'{"id":"x","delta":{"content":', b'},"n":null}'


def content_of(data: bytes) -> str | None:
    try:
        text = msgspec.json.decode(data)["delta"]["content"]
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError):
        return None
    return text if isinstance(text, str) else None


def shaped(*tokens: bytes) -> bytes:
    """Events of one mould, with `tokens` where its string stands."""
    return b"".join(encode_data(BEFORE + token + AFTER) for token in tokens)


def mould() -> FrameTemplate:
    parts = around(Event(BEFORE + b'"Hi"' + AFTER), "Hi", content_of)
    assert parts is not None
    return FrameTemplate(*parts)


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (shaped(b'"a"'), ["a"]),
        (shaped(b'"a"', b'""', b'" b"'), ["a", "", " b"]),
        (shaped(rb'"\"\n\u00e9\ud83d\ude00\/"'), ['"\n\u00e9\U0001f600/']),
        (shaped('"é\U0001f600"'.encode()), ["é\U0001f600"]),
        (shaped(rb'"data: {\"id\"\n\n"'), ['data: {"id"\n\n']),
        (shaped(b"null"), None),
        (shaped(b"7"), None),
        (shaped(b' "a"'), None),
        (shaped(b'"a"\n'), None),
        (shaped(b'"a\nb"'), None),
        (shaped(b'"a\rb"'), None),
        (shaped(b'"a","role":"b"'), None),
        (shaped(b'"a\\"'), None),
        (shaped(b'"\xff"'), None),
        (shaped(b'"\xed\xa0\x80"'), None),
        (shaped(rb'"\ud800"'), None),
        (shaped(b'"a"')[:-1], None),
        (shaped(b'"a"')[1:], None),
        (shaped(b'"a"') + b": ping\n\n", None),
        (shaped(b'"a"') + b": ping\n\n" + shaped(b'"b"'), None),
        (shaped(b'"a"') + DONE, None),
        (shaped(b'"a"').replace(b'"x"', b'"y"'), None),
        (shaped(b'"a"').replace(b"null", b"1"), None),
        (b"", None),
    ],
)
def test_template_extracts_texts_of_matching_events_only(chunk: bytes, expected: list[str] | None) -> None:
    assert mould().texts(chunk) == expected


@given(st.lists(st.binary(max_size=12) | st.text(max_size=12).map(lambda text: json.dumps(text)[1:-1].encode())))
def test_template_reads_the_same_texts_as_parser_and_decoder(inner: list[bytes]) -> None:
    chunk = shaped(*(b'"%b"' % text for text in inner))
    texts = mould().texts(chunk)
    if texts is not None:
        documents = [msgspec.json.decode(event.data) for event in events_of(chunk)]
        assert documents == [{"id": "x", "delta": {"content": text}, "n": None} for text in texts]


@pytest.mark.parametrize(
    "data",
    [
        b'{"delta":{"content":"H\\u0069"}}',  # spelled otherwise
        b'{"id":"Hi","delta":{"content":"Hi"}}',  # found elsewhere first
        b'{"id":"\\"Hi","delta":{"content":"\\u0048i"}}',  # inside of another string
        b'{"delta":{"content":"Hi"},"delta":{"content":"Hi"}}',  # said twice
    ],
)
def test_no_template_is_created_if_the_position_of_the_text_is_ambiguous(data: bytes) -> None:
    assert content_of(data) == "Hi"
    assert around(Event(data), "Hi", content_of) is None


def test_parser_reports_whether_the_next_byte_begins_an_event() -> None:
    parser = EventParser()
    known = []
    for piece in (b"data: 1\n\n", b"da", b"ta: 2\n", b"\n", b"event: x\n", b"data: 3\n\n", b"data: 4\n\n\r"):
        parser.feed(piece)
        known.append(parser.between_events)
    assert known == [True, False, False, True, False, True, False]
