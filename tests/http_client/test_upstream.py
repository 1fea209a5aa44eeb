"""The way out: what providers get from `Upstream`, above all when the other side misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from gateway.errors import (
    InvalidValue,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamTruncated,
    UpstreamUnreachable,
)
from gateway.http_client.multipart import Multipart
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Answer, Upstream
from gateway.sse import Event
from gateway.testing import FakeUpstream, Reply
from tests.delays import caller_is_silent_for, forever, upstream_is_silent_for
from tests.polling import at_once, turns, until, until_still

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    link = Upstream()
    try:
        yield link
    finally:
        await link.close()


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """The port of a listener whose queue is full: packets to it are dropped."""
    with (
        contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as listener,
        contextlib.ExitStack() as stack,
    ):
        port = listener.getsockname()[1]
        for _ in range(8):
            waiting = stack.enter_context(contextlib.closing(socket.socket()))
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


@contextlib.asynccontextmanager
async def raw_peer(behave: Peer) -> AsyncIterator[str]:
    """A server that does exactly what the test says, byte by byte."""
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await behave(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in connections:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


def answering(raw: bytes, *, then: str = "close") -> Peer:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(raw)
        await writer.drain()
        if then == "close":
            writer.close()
        else:
            await forever()

    return behave


async def test_json_answer_is_read_whole_and_the_connection_is_used_again() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(*(Reply.json({"n": n}, headers={"X-Thing": "1"}) for n in range(3)))
        for n in range(3):
            async with await link.send("POST", fake.url + "/x", headers={"A": "b"}, body=b"{}") as answer:
                assert (answer.status, answer.headers["x-thing"]) == (200, "1")
                assert await answer.read() == b'{"n":%d}' % n
        assert [seen.headers["accept-encoding"] for seen in fake.seen] == ["identity"] * 3
        assert fake.seen[0].headers["a"] == "b" and "cookie" not in fake.seen[0].headers


async def test_finished_answers_share_one_connection() -> None:
    opened = 0

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while True:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with raw_peer(behave) as url, upstream() as link:
        for _ in range(5):
            async with await link.send("POST", url, body=b"{}") as answer:
                assert await answer.read() == b"ok"
    assert opened == 1


def idle_connections(link: Upstream) -> int:
    assert link._pool is not None
    return sum(len(origin._idle) for origin in link._pool._origins.values())


async def test_connection_is_kept_after_an_event_stream_released_at_its_marker() -> None:
    opened, released = 0, asyncio.Event()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while True:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne\r\ndata: [DONE]\n\n\r\n")
            await writer.drain()
            await released.wait()  # the body's end comes late, as from a server that flushes per event
            released.clear()
            writer.write(b"0\r\n\r\n")

    async with raw_peer(behave) as url, upstream() as link:
        for _ in range(3):
            answer = await link.send("POST", url, body=b"{}")
            assert [event.data for event in await answer.read_events()] == [b"[DONE]"]
            answer.release()
            released.set()
            await until(lambda: idle_connections(link) == 1)
    assert opened == 1


async def test_connection_refused_is_unreachable_and_names_no_address() -> None:
    async with upstream() as link:
        with pytest.raises(UpstreamUnreachable) as caught:
            await link.send("POST", "http://127.0.0.1:1/v1", body=b"{}")
    assert "127.0.0.1" not in caught.value.message and caught.value.retryable
    assert "127.0.0.1" in (caught.value.detail or "")


async def test_unknown_host_is_unreachable() -> None:
    async with upstream() as link:
        with pytest.raises(UpstreamUnreachable):
            await link.send("GET", "http://nowhere.invalid/")


async def test_plain_http_behind_an_https_address_is_unreachable() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        with pytest.raises(UpstreamUnreachable):
            await link.send("GET", fake.url.replace("http:", "https:"))


async def test_connection_closed_before_the_first_byte_is_unreachable_and_sent_once() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply.json({}), Reply.hang_up(), Reply.json({}))
        async with await link.send("POST", fake.url, body=b"{}") as answer:
            await answer.read()  # so that the next request goes out on a kept-alive connection
        with pytest.raises(UpstreamUnreachable):
            await link.send("POST", fake.url, body=b"{}")
        assert len(fake.seen) == 2


async def test_idle_connection_that_the_server_closed_is_not_used_again() -> None:
    requests, answered = 0, asyncio.Event()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        requests += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        await answered.wait()
        answered.clear()
        writer.close()

    async with raw_peer(behave) as url, upstream() as link:
        for _ in range(3):
            async with await link.send("POST", url, body=b"{}") as answer:
                assert await answer.read() == b"ok"
            assert idle_connections(link) == 1
            answered.set()
            await until(lambda: idle_connections(link) == 0)
    assert requests == 3


async def test_connect_timeout() -> None:
    with socket.socket() as full, contextlib.ExitStack() as fillers:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # a backlog that is full leaves further SYNs unanswered
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        async with upstream() as link, at_once(within=1.0):
            with pytest.raises(UpstreamTimeout):
                await link.send("GET", f"http://127.0.0.1:{full.getsockname()[1]}", timeouts=Timeouts(connect=0.2))


async def test_first_byte_timeout() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply.silence())
        async with at_once(within=1.0):
            with pytest.raises(UpstreamTimeout):
                await link.send("POST", fake.url, body=b"{}", timeouts=Timeouts(first_byte=0.1))
        assert (await fake.wait_ended()).outcome == "left"


async def test_silence_between_headers_and_body_is_bounded_by_the_first_byte_timeout() -> None:
    peer = answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", then="wait")
    async with raw_peer(peer) as url, upstream() as link:
        answer = await link.send("POST", url, timeouts=Timeouts(first_byte=0.15, idle=60))
        with pytest.raises(UpstreamTimeout):
            await answer.read()


async def test_idle_timeout_counts_from_the_last_byte() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"data: 1\n\n"] * 6, interval=0.25, end="silence"))
        answer = await link.send("POST", fake.url, timeouts=Timeouts(first_byte=9, idle=1.0))
        received = []
        started = time.monotonic()
        async with at_once(within=5.0):
            with pytest.raises(UpstreamTimeout):
                async for event in answer.events():
                    received.append(event.data)
        assert received == [b"1"] * 6
        assert time.monotonic() - started > 2.0


async def test_slow_reader_is_not_a_silent_upstream() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"], interval=0.05))
        idle = 0.25
        answer = await link.send("POST", fake.url, timeouts=Timeouts(first_byte=idle, idle=idle))
        assert [event.data for event in await answer.read_events()] == [b"1"]
        await caller_is_silent_for(idle + 0.1)
        assert [event.data async for event in answer.events()] == [b"2", b"3"]


async def test_total_timeout_ends_a_stream_that_keeps_sending() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"data: 1\n\n"] * 1000, interval=0.02))
        answer = await link.send("POST", fake.url, timeouts=Timeouts(total=0.3))
        with pytest.raises(UpstreamTimeout):
            async for _ in answer.events():
                pass
        assert (await fake.wait_ended()).outcome == "left"


@pytest.mark.parametrize("end", ["chunked", "length"])
async def test_body_cut_short_is_truncated(end: str) -> None:
    head = b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n" if end == "chunked" else b"Content-Length: 9\r\n\r\nabcd"
    async with raw_peer(answering(b"HTTP/1.1 200 OK\r\n" + head)) as url, upstream() as link:
        answer = await link.send("POST", url)
        with pytest.raises(UpstreamTruncated):
            while await answer.read_chunk():
                pass


@pytest.mark.parametrize(
    "raw",
    [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 two hundred\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"],
)
async def test_answer_that_is_not_http_is_invalid(raw: bytes) -> None:
    async with raw_peer(answering(raw)) as url, upstream() as link:
        with pytest.raises(UpstreamInvalidResponse):
            await link.send("GET", url)


async def test_broken_chunk_sizes_are_an_upstream_error() -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\nzz\r\n"
    async with raw_peer(answering(raw)) as url, upstream() as link:
        with pytest.raises(UpstreamError):
            answer = await link.send("GET", url)
            while await answer.read_chunk():
                pass


async def test_answer_over_the_limit_is_refused_and_its_socket_closed() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"x" * 1000] * 100_000))
        answer = await link.send("GET", fake.url)
        with pytest.raises(UpstreamInvalidResponse):
            await answer.read(limit=5000)
        assert (await fake.wait_ended()).outcome == "left"


async def test_unrequested_compressed_answer_is_decoded() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(body=gzip.compress(b'{"a":1}'), headers={"Content-Encoding": "gzip"}))
        async with await link.send("GET", fake.url) as answer:
            assert await answer.read() == b'{"a":1}'


async def test_compression_bomb_is_refused() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(body=gzip.compress(bytes(50_000_000)), headers={"Content-Encoding": "gzip"}))
        answer = await link.send("GET", fake.url)
        with pytest.raises(UpstreamInvalidResponse):
            await answer.read(limit=1_000_000)


async def test_redirects_are_not_followed() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(status=302, headers={"Location": fake.url + "/elsewhere"}))
        async with await link.send("GET", fake.url) as answer:
            assert answer.status == 302
        assert len(fake.seen) == 1


async def assert_closed_at_once(fake: FakeUpstream, act: Callable[[], Awaitable[None]]) -> None:
    async with at_once():
        await act()
        seen = await fake.wait_ended()
    assert seen.outcome == "left"


async def test_cancelled_wait_for_headers_closes_the_socket_at_once() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply.silence())
        task = asyncio.ensure_future(link.send("POST", fake.url, body=b"{}"))
        await fake.wait_started()

        async def cancel() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        await assert_closed_at_once(fake, cancel)


async def test_cancelled_stream_closes_the_socket_at_once() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"data: 1\n\n"], end="silence"))
        first = asyncio.Event()

        async def consume() -> None:
            async with await link.send("POST", fake.url, body=b"{}") as answer:
                async for _ in answer.events():
                    first.set()

        task = asyncio.ensure_future(consume())
        await first.wait()

        async def cancel() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        await assert_closed_at_once(fake, cancel)


async def test_closing_an_answer_early_closes_the_socket_at_once() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"data: 1\n\n"] * 10_000, interval=0.005))

        async def leave() -> None:
            async with await link.send("POST", fake.url, body=b"{}") as answer:
                await answer.read_events()

        await assert_closed_at_once(fake, leave)


async def test_stalled_reader_holds_little_of_a_fast_upstream() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"x" * 65536] * 1000))
        answer: Answer = await link.send("GET", fake.url)
        await answer.read_chunk()
        held = await until_still(lambda: answer._content._size)
        answer.close()
        assert held <= 256 * 1024
        assert 0 < fake.seen[0].frames < 1000


async def test_more_than_a_hundred_streams_are_read_at_once() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.tamper = lambda _: Reply(frames=[b"data: 1\n\n"], end="silence")
        fake.answer = lambda _: Reply()
        answers = await asyncio.gather(*(link.send("GET", fake.url) for _ in range(150)))
        assert all([await answer.read_events() for answer in answers])
        for answer in answers:
            answer.close()


async def test_streamed_body_arrives_complete() -> None:
    async def source() -> AsyncIterator[bytes]:
        for n in range(50):
            yield b"%d," % n

    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply())
        async with await link.send("POST", fake.url, body=source()):
            assert fake.seen[0].body == b"".join([b"%d," % n for n in range(50)])


async def test_error_of_a_body_source_is_raised_unchanged() -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"first"
        raise InvalidValue("the upload is broken")

    async with FakeUpstream() as fake, upstream() as link:
        with pytest.raises(InvalidValue):
            await link.send("POST", fake.url, body=source())


async def test_multipart_streams_files_and_escapes_hostile_names() -> None:
    async def audio() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"RIFF" * 1000

    form = (
        Multipart().field("model", "whisper").file("file", audio(), filename='a"\r\nX: y.wav', content_type="audio/wav")
    )
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply())
        async with await link.send("POST", fake.url, body=form):
            pass
        body = fake.seen[0].body
        assert fake.seen[0].headers["content-type"] == form.content_type
        assert body.count(b"RIFF") == 3000 and b"\r\nX: y" not in body
        assert b'name="model"\r\n\r\nwhisper\r\n' in body


async def test_multipart_whose_files_have_a_size_has_a_content_length() -> None:
    async def audio() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"RIFF" * 1000

    form = Multipart().field("prompt", "Vögel").file("file", audio(), filename="ä.wav", size=12_000)
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply())
        async with await link.send("POST", fake.url, body=form):
            pass
        seen = fake.seen[0]
        assert seen.headers["content-length"] == str(len(seen.body)) == str(form.length)
        assert "transfer-encoding" not in seen.headers
        assert Multipart().file("file", audio(), filename="a.wav").length is None


def streamed(*pieces: bytes, pause: Callable[[], Awaitable[None]] = turns, whole: bool = True) -> Peer:
    """An event stream that arrives in just these pieces, each after a pause, and then ends or is silent."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            await writer.drain()
            await pause()
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if whole:
            writer.write(b"0\r\n\r\n")
        await reader.read()  # until the other side has enough

    return behave


async def test_pieces_taken_by_the_callback_do_not_wake_the_reader() -> None:
    taken = []

    def past(piece: bytes) -> bool:
        if piece.startswith(b"data: past"):
            taken.append(piece)
            return True
        return False

    pieces = [b"data: 1\n\n", b"data: past 2\n\n", b"data: past 3\n\n", b"data: 4\n\n", b"data: past 5\n\n"]
    async with raw_peer(streamed(*pieces)) as url, upstream() as link, await link.send("POST", url) as answer:
        read = [[event.data for event in await answer.read_events(past)] for _ in range(3)]
    assert read == [[b"1"], [b"4"], []]
    assert taken == [pieces[1], pieces[2], pieces[4]]


async def test_only_data_at_the_start_of_an_event_are_passed_to_the_callback() -> None:
    shown = []

    def past(piece: bytes) -> bool:
        shown.append(piece)
        return False

    pieces = [b"data: 1\n\n", b"data: ", b"2\n", b"\n", b"data: 3\n\n"]
    async with raw_peer(streamed(*pieces)) as url, upstream() as link, await link.send("POST", url) as answer:
        read = []
        while events := await answer.read_events(past):
            read += [event.data for event in events]
    assert read == [b"1", b"2", b"3"]
    assert shown == [b"data: ", b"data: 3\n\n"]


async def test_data_queued_for_a_busy_reader_are_not_passed_to_the_callback() -> None:
    taken: list[bytes] = []

    def past(piece: bytes) -> bool:
        taken.append(piece)
        return True

    pieces = [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"]
    async with raw_peer(streamed(*pieces)) as url, upstream() as link, await link.send("POST", url) as answer:
        assert await answer.read_events() == [Event(b"1")]
        await until(lambda: len(answer._content._pieces) == 2)
        assert await answer.read_events(past) == [Event(b"2"), Event(b"3")]
        assert await answer.read_events(past) == []
    assert taken == []


async def test_error_of_the_callback_is_raised_by_the_read() -> None:
    def past(piece: bytes) -> bool:
        raise LookupError("mine")

    peer = streamed(b"data: 1\n\n", b"data: 2\n\n", whole=False)
    async with raw_peer(peer) as url, upstream() as link, await link.send("POST", url) as answer:
        assert await answer.read_events(past) == [Event(b"1")]
        with pytest.raises(LookupError, match="mine"):
            await answer.read_events(past)


async def test_data_taken_by_the_callback_restart_the_idle_timeout() -> None:
    pieces = [b"data: %d\n\n" % number for number in range(6)]
    pause, idle = 0.3, 1.0
    patience = Timeouts(connect=60, first_byte=60, idle=idle, total=60)
    peer = streamed(*pieces, pause=lambda: upstream_is_silent_for(pause), whole=False)
    async with raw_peer(peer) as url, upstream() as link, await link.send("POST", url, timeouts=patience) as answer:
        assert await answer.read_events(lambda piece: True) == [Event(b"0")]
        began = time.monotonic()
        with pytest.raises(UpstreamTimeout):
            await answer.read_events(lambda piece: True)
        assert time.monotonic() - began > 5 * pause + 0.8 * idle


async def test_lines_are_whole_however_they_arrive() -> None:
    body = b'{"a": 1}\r\n\n{"b": "\xc3\xa9"}\n{"c": 3}'
    for size in (1, 3, len(body)):
        async with FakeUpstream() as fake, upstream() as link:
            fake.enqueue(Reply(frames=[body[at : at + size] for at in range(0, len(body), size)]))
            async with await link.send("GET", fake.url) as answer:
                assert [line async for line in answer.lines()] == [b'{"a": 1}', b'{"b": "\xc3\xa9"}', b'{"c": 3}']


@pytest.mark.parametrize("frames", [[b"x" * 30, b"y" * 30], [b"x" * 60 + b"\n"]])
async def test_line_over_its_limit_is_an_invalid_response(frames: list[bytes]) -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=frames))
        async with await link.send("GET", fake.url) as answer:
            with pytest.raises(UpstreamInvalidResponse):
                assert [line async for line in answer.lines(limit=50)]


async def test_lines_of_a_body_that_breaks_off_raise() -> None:
    async with FakeUpstream() as fake, upstream() as link:
        fake.enqueue(Reply(frames=[b"1\n", b"2"], end="cut"))
        async with await link.send("GET", fake.url) as answer:
            lines = answer.lines()
            assert await anext(lines) == b"1"
            with pytest.raises(UpstreamTruncated):
                await anext(lines)


async def test_connection_is_tried_to_the_hosts_that_got_requests() -> None:
    async with upstream() as link, FakeUpstream() as server:
        assert await link.connects() is None
        answer = await link.send("POST", f"{server.base_url}/chat/completions", body=b'{"model":"m","messages":[{}]}')
        await answer.read()
        assert await link.connects() is True
        await server.close()
        assert await link.connects() is False
        async with FakeUpstream() as other:
            answer = await link.send(
                "POST", f"{other.base_url}/chat/completions", body=b'{"model":"m","messages":[{}]}'
            )
            await answer.read()
            assert await link.connects() is True, "one of them is enough"


@pytest.mark.slow
async def test_call_waits_for_a_connection_until_any_host_takes_one() -> None:
    async with upstream() as link, FakeUpstream() as server:
        with full_listener() as port:
            call = asyncio.create_task(link.send("POST", f"http://127.0.0.1:{port}/v1", body=b"{}"))
            await until(link.waits)
            assert await link.connects() is False
            assert link.waits()
            await (
                await link.send("POST", f"{server.base_url}/chat/completions", body=b'{"model":"m","messages":[{}]}')
            ).read()
            assert not link.waits(), "a connection was made meanwhile"
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert not link.waits()
