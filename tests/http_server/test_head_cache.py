"""A head that comes again is not parsed again, and is understood exactly as if it were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.http_server.head import HeaderNames, RequestHead
from gateway.http_server.parser import RequestParser
from tests.quick import examples

PLAIN = b"POST /v1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-1\r\nContent-Length: %d\r\nX-A: b\r\n\r\n"


def new_parser() -> RequestParser:
    return RequestParser(HeaderNames(), max_header_bytes=1000, max_header_count=10)


def read(parser: RequestParser, request: bytes) -> tuple[RequestHead | None, bytes]:
    """The head and the body of one request, which arrives in one piece; the parser is ready for the next."""
    data, at = bytearray(request), 0
    while at < len(data) and not parser.complete:
        at = parser.feed(data, at, len(data))
    assert at == len(data)
    assert parser.complete
    head, body = parser.head, parser.take_body()
    parser.next_request()
    return head, body


def told(head: RequestHead | None) -> object:
    assert head is not None
    framing = (head.content_length, head.chunked, head.keep_alive, head.expects_continue)
    return head.start_line, list(head.headers.get_all()), framing


def test_the_same_head_is_read_once() -> None:
    parser = new_parser()
    read(parser, PLAIN % 3 + b"abc")  # many a connection has no second request
    first, _ = read(parser, PLAIN % 3 + b"abc")
    second, body = read(parser, PLAIN % 3 + b"xyz")
    assert second is first
    assert body == b"xyz"


def test_application_data_of_a_cached_head_are_kept_with_another_content_length() -> None:
    parser = new_parser()
    read(parser, PLAIN % 3 + b"abc")
    first, _ = read(parser, PLAIN % 3 + b"abc")
    assert first is not None
    first.headers.application_data = "theirs"
    second, body = read(parser, PLAIN % 1000 + b"b" * 1000)
    assert second is not None
    assert second.headers.application_data == "theirs"
    assert (second.headers.get("Content-Length"), len(body)) == ("1000", 1000)
    assert told(second) == told(read(new_parser(), PLAIN % 1000 + b"b" * 1000)[0])
    third, _ = read(parser, (PLAIN % 3).replace(b"sk-1", b"sk-2") + b"abc")
    assert third is not None
    assert third.headers.application_data is None
    assert third.headers.get("Authorization") == "Bearer sk-2"


def test_head_of_a_client_that_never_repeats_it_is_no_longer_stored() -> None:
    parser = new_parser()
    for number in range(10):
        read(parser, (PLAIN % 3).replace(b"sk-1", b"sk-%d" % number) + b"abc")
    first, _ = read(parser, PLAIN % 3 + b"abc")
    second, _ = read(parser, PLAIN % 3 + b"abc")
    assert second is not first
    assert told(second) == told(first)


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 3\r\nContent-Length: 4",
        b"Content-Length: 3\r\ncontent-length: 3",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked",
        b"Content-Length: 0x3",
        b"Content-Length: +3",
        b"Content-Length: -3",
        b"Content-Length: 3 3",
        b"Content-Length: ",
        b"Content-Length: 99999999999999999999999",
        b"Content-Length: 3,3",
        b"Content-Length:\t\x0b3",
    ],
)
def test_invalid_head_is_refused_after_valid_ones_too(lengths: bytes) -> None:
    request = (PLAIN % 3).replace(b"Content-Length: 3", lengths) + b"abc"
    with pytest.raises(BadRequest):
        read(new_parser(), request)
    parser = new_parser()
    for _ in range(3):
        read(parser, PLAIN % 3 + b"abc")
    with pytest.raises(BadRequest):
        read(parser, request)


def test_a_longer_length_does_not_make_a_head_longer_than_its_limit() -> None:
    parser = RequestParser(HeaderNames(), max_header_bytes=len(PLAIN % 3), max_header_count=10)
    for _ in range(3):
        read(parser, PLAIN % 3 + b"abc")
    with pytest.raises(BadRequest, match="larger than"):
        read(parser, PLAIN % 10 + b"a" * 10)


line = st.sampled_from(
    [
        b"X-A: b",
        b"X-A: c",
        b"x-a: b",
        b"Connection: keep-alive",
        b"Connection: Upgrade\r\nUpgrade: h2c",
        b"Expect: 100-continue",
        b"Content-Length:  03 ",
        b"Content-Length: 3",
        b"content-length: 3",
        b"Content-Length: 12",
        b"Transfer-Encoding: chunked",
        b"Host: x",
        b"X-Says: Content-Length: 3",
        b" folded",
        b"",
    ]
)
start = st.sampled_from(
    [b"POST / HTTP/1.1", b"POST / HTTP/1.0", b"GET / HTTP/1.1", b"POST /b HTTP/1.1", b"\r\nPOST / HTTP/1.1"]
)
request = st.tuples(start, st.lists(line, max_size=4), st.sampled_from([b"", b"abc", b"0\r\n\r\n", b"abcdefghijkl"]))


@pytest.mark.slow
@settings(max_examples=examples(2000), deadline=None)
@given(st.lists(st.tuples(request, st.integers(1, 4)), min_size=1, max_size=4))
def test_head_cache_does_not_change_what_a_connection_reads(
    requests: list[tuple[tuple[bytes, list[bytes], bytes], int]],
) -> None:
    remembering = new_parser()
    for (first, lines, body), times in requests:
        data = b"\r\n".join([first, b"Host: x", *lines, b"", body])
        for _ in range(times):
            try:
                expected = read(new_parser(), data)
            except (BadRequest, AssertionError) as error:  # refused, or its body is not of the length it says
                with pytest.raises(type(error)):
                    read(remembering, data)
                return
            found = read(remembering, data)
            assert (told(found[0]), found[1]) == (told(expected[0]), expected[1])
            if found[0] is not None and not found[0].keep_alive:
                return  # nothing is read behind it
