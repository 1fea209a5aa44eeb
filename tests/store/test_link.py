"""RedisLink against a real server, straight and through a proxy that misbehaves on demand."""

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from math import log2
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store import EmbeddedServer
from gateway.store.address import RedisAddress
from gateway.store.command import Script, pack
from gateway.store.connection import RedisConnection, RedisReplyError, ReplyTo
from gateway.store.link import RedisLink
from gateway.store.reconnect_pace import MAX_BACKOFF, MIN_BACKOFF
from tests.delays import caller_is_silent_for, loop_is_held_for
from tests.leftovers import garbage
from tests.polling import PATIENCE, at_once, turns, until

CERTIFICATES = Path(__file__).parents[1] / "certificates"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path_factory.mktemp("link"))
    server.start_blocking()
    yield server
    server.stop_blocking()


class Proxy:
    """TCP (or TLS) in front of the server's socket; can swallow both directions, lose replies, and cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.black_hole = False
        self.lose_replies = False
        self.connections = 0
        self.swallowed = 0  # bytes of commands
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await until(lambda: not self._writers)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream, to_upstream = await asyncio.open_unix_connection(str(self.path))
        mine = {writer, to_upstream}
        self._writers |= mine
        replies = asyncio.create_task(self._pump(upstream, writer, lambda: self.lose_replies or self.black_hole))
        await self._pump(reader, to_upstream, lambda: self.black_hole, self._count_swallowed)
        await replies
        for each in mine:
            with contextlib.suppress(OSError):
                await each.wait_closed()
        self._writers -= mine

    def _count_swallowed(self, chunk: bytes) -> None:
        self.swallowed += len(chunk)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        swallow: Callable[[], bool],
        swallowed: Callable[[bytes], None] = lambda chunk: None,
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                (swallowed if swallow() else writer.write)(chunk)
        writer.close()


@asynccontextmanager
async def linked(address: RedisAddress, **options: object) -> AsyncIterator[RedisLink]:
    link = RedisLink(address, **options)  # type: ignore[arg-type]
    try:
        await link.connect()
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def refused(address: RedisAddress) -> AsyncIterator[tuple[RedisLink, str]]:
    """A link whose first attempt failed, and why."""
    link = RedisLink(address)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await link.connect()
        assert caught.value.detail is not None
        yield link, caught.value.detail
    finally:
        await link.close()


@asynccontextmanager
async def proxied(server: EmbeddedServer) -> AsyncIterator[tuple[Proxy, RedisLink]]:
    proxy = Proxy(server.socket)
    await proxy.start()
    try:
        async with linked(RedisAddress(port=proxy.port)) as link:
            yield proxy, link
    finally:
        await proxy.stop()


@asynccontextmanager
async def fake_server(answers: dict[bytes, bytes]) -> AsyncIterator[RedisAddress]:
    """Gives one fixed answer to each command it knows."""
    serving = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal serving
        serving += 1
        with contextlib.suppress(OSError):
            while command := await reader.read(4096):
                writer.write(b"".join(answer for name, answer in answers.items() if name in command))
            writer.close()
            await writer.wait_closed()
        serving -= 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield RedisAddress(port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await until(lambda: not serving)


def straight(server: EmbeddedServer, **fields: object) -> RedisAddress:
    return RedisAddress(path=str(server.socket), **fields)  # type: ignore[arg-type]


async def until_it_answers(link: RedisLink, *, within: float = PATIENCE) -> None:
    async def answers() -> bool:
        try:
            await link.call("PING")
        except StoreUnavailable:
            return False
        return True

    async with at_once(within=within):
        await until(answers)


# Calls ---------------------------------------------------------------------------------------------------------------


async def test_calls_of_one_tick_are_sent_in_one_write(server, monkeypatch):
    async with linked(straight(server)) as link:
        transport, writes = link._connection._transport, []

        class Counting:
            is_closing = transport.is_closing
            abort = transport.abort

            def write(self, data):
                writes.append(data)
                transport.write(data)

        monkeypatch.setattr(link._connection, "_transport", Counting())
        await asyncio.gather(*(link.call("PING") for _ in range(100)))
        assert len(writes) == 1
        await link.call("PING")
        assert len(writes) == 2


async def test_replies_reach_their_calls_in_order(server):
    async with linked(straight(server)) as link:
        replies = await asyncio.gather(*(link.call("ECHO", n) for n in range(3000)))
        assert [int(reply) for reply in replies] == list(range(3000))
        assert link.in_flight == 0


async def test_an_error_reply_concerns_its_own_call_only(server):
    async with linked(straight(server)) as link:
        replies: Any = await asyncio.gather(
            link.call("ECHO", "a"), link.call("NOSUCHCOMMAND"), link.call("ECHO", "b"), return_exceptions=True
        )
        before, wrong, after = replies
        assert (before, after) == (b"a", b"b")
        assert isinstance(wrong, RedisReplyError)
        assert (wrong.kind, wrong.status) == ("ERR", 500)
        assert "NOSUCHCOMMAND" in str(wrong.detail)
        assert "NOSUCHCOMMAND" not in wrong.message


async def test_a_cancelled_call_does_not_shift_the_replies_behind_it(server):
    async with linked(straight(server)) as link:
        first, second = link.call("ECHO", "first"), link.call("ECHO", "second")
        first.cancel()
        assert await second == b"second"


async def test_an_argument_of_a_wrong_type_is_refused_before_anything_is_queued(server):
    async with linked(straight(server)) as link:
        with pytest.raises(TypeError):
            link.call("SET", "k", cast("Any", None))
        assert link.in_flight == 0
        assert await link.call("SET", b"k", 1.5) == b"OK"


async def test_script_is_loaded_again_after_a_flush(server):
    script = Script("return {KEYS[1], ARGV[1]}")
    async with linked(straight(server)) as link:
        assert await link.eval(script, ["k"], [1]) == [b"k", b"1"]
        await link.call("SCRIPT", "FLUSH")
        answers = await asyncio.gather(*(link.eval(script, ["k"], [n]) for n in range(50)))
        assert [int(answer[1]) for answer in answers] == list(range(50))


async def test_script_error_is_raised_and_not_tried_again(server):
    script = Script("redis.call('INCR', KEYS[1]); return redis.error_reply('BROKEN on purpose')")
    async with linked(straight(server)) as link:
        await link.call("DEL", "tries")
        with pytest.raises(RedisReplyError) as caught:
            await link.eval(script, ["tries"], [])
        assert caught.value.kind == "BROKEN"
        assert await link.call("GET", "tries") == b"1"


@pytest.mark.holds("operations/redis.md#a-slow-store-4")
async def test_too_many_commands_in_flight_are_refused_at_once(server):
    async with linked(straight(server), max_in_flight=10) as link:
        calls = [link.call("PING") for _ in range(12)]
        assert [call.done() for call in calls] == [False] * 10 + [True] * 2
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert answers[:10] == [b"PONG"] * 10
        assert {type(answer) for answer in answers[10:]} == {StoreUnavailable}
        assert {answer.fate for answer in answers[10:]} == {StoreFate.NEVER_SENT}


# Addresses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "hash_reply"), [(2, [b"f", b"1"]), (3, {b"f": b"1"})])
async def test_both_protocols_log_in_and_choose_a_database(server, protocol, hash_reply):
    async with linked(straight(server)) as admin:
        await admin.call("ACL", "SETUSER", "clerk", "on", ">s3cret", "~*", "&*", "+@all")
        address = straight(server, username="clerk", password="s3cret", db=3, protocol=protocol)
        async with linked(address) as link:
            assert await link.call("ACL", "WHOAMI") == b"clerk"
            assert b" db=3 " in await link.call("CLIENT", "INFO")
            await link.call("HSET", "h", "f", 1)
            assert await link.call("HGETALL", "h") == hash_reply
        assert await admin.call("EXISTS", "h") == 0


async def test_a_wrong_password_fails_the_connect_and_is_not_shown(server):
    async with linked(straight(server)) as admin:
        await admin.call("ACL", "SETUSER", "clerk", "on", ">s3cret", "~*", "&*", "+@all")
    async with refused(straight(server, username="clerk", password="wr0ng")) as (link, detail):
        assert "WRONGPASS" in detail
        assert "wr0ng" not in detail + repr(link.address)


async def test_tls_is_spoken_and_the_certificate_checked(server):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    proxy = Proxy(server.socket)
    await proxy.start(tls=tls)
    try:
        ca = str(CERTIFICATES / "localhost.pem")
        async with linked(RedisAddress(host="localhost", port=proxy.port, tls=True, tls_ca=ca)) as link:
            assert await link.call("PING") == b"PONG"
        async with refused(RedisAddress(host="localhost", port=proxy.port, tls=True)) as (_, detail):
            assert "CERTIFICATE_VERIFY_FAILED" in detail
    finally:
        await proxy.stop()


async def test_identity_names_the_server_process(server):
    async with linked(straight(server)) as link:
        assert len(link.identity.run_id) == len(link.identity.master_replid) == 40
        assert link.identity.role == "master"
        assert str(server.version).endswith(link.identity.version)


# Faults --------------------------------------------------------------------------------------------------------------


async def test_a_lost_connection_gives_sent_and_unsent_commands_different_errors(server):
    async with proxied(server) as (proxy, link):
        proxy.black_hole = True
        sent = link.call("INCR", "n")
        await until(lambda: proxy.swallowed)
        unsent = link.call("INCR", "n")
        link._connection.abort("pulled")  # in the tick of the call, so that it is not written yet
        errors = await asyncio.gather(sent, unsent, return_exceptions=True)
        assert [error.fate for error in errors] == [StoreFate.UNKNOWN, StoreFate.NEVER_SENT]
        assert [error.log_text() for error in errors] == ["sent, fate unknown: pulled", "never sent: pulled"]


async def test_a_cut_connection_fails_calls_at_once_and_is_replaced(server):
    async with proxied(server) as (proxy, link):
        proxy.black_hole = True
        call = link.call("PING")
        await until(lambda: proxy.swallowed)
        proxy.cut()
        await turns()
        assert call.done(), "it does not wait for its timeout"
        with pytest.raises(StoreUnavailable):
            await call
        proxy.black_hole = False
        assert await link.call("PING") == b"PONG"  # waits for the reconnect instead of failing
        assert proxy.connections == 2


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-3")
@pytest.mark.slow
async def test_calls_to_a_silent_server_fail_within_300_ms_and_the_link_recovers_within_2_s(server):
    async with proxied(server) as (proxy, link):
        proxy.black_hole = True
        for _ in range(6):
            async with at_once(within=0.3):
                with pytest.raises(StoreUnavailable) as caught:
                    await link.call("PING")
            assert caught.value.status == 503
            await caller_is_silent_for(0.2)
        proxy.black_hole = False
        await until_it_answers(link, within=2.0)


@pytest.mark.holds("operations/redis.md#redis-for-production-14")
async def test_a_command_whose_reply_was_lost_is_not_sent_again(server):
    async with proxied(server) as (proxy, link):
        await link.call("SET", "n", 0)
        proxy.lose_replies = True
        with pytest.raises(StoreUnavailable) as caught:
            await link.call("INCR", "n")
        assert caught.value.fate is StoreFate.UNKNOWN
        proxy.lose_replies = False
        await until_it_answers(link)
        assert await link.call("GET", "n") == b"1"


@pytest.mark.slow
async def test_after_an_outage_longer_than_the_timeout_calls_fail_at_once(server):
    proxy, attempts = Proxy(server.socket), 0

    async def locate() -> RedisAddress:
        nonlocal attempts
        attempts += 1
        return RedisAddress(port=proxy.port)

    await proxy.start()
    try:
        async with linked(RedisAddress(port=proxy.port), locate=locate) as link:
            await proxy.stop()
            await until(lambda: attempts > log2(MAX_BACKOFF / MIN_BACKOFF) + 2)  # each doubles the backoff
            calls = [link.call("PING") for _ in range(100)]
            assert all(call.done() for call in calls)
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert all(error.fate is StoreFate.NEVER_SENT for error in errors)
            await proxy.start(proxy.port)
            await until_it_answers(link, within=2.0)
    finally:
        await proxy.stop()


async def test_a_restarted_server_is_noticed_and_used_again(tmp_path):
    server = EmbeddedServer(tmp_path)
    server.start_blocking()
    try:
        async with linked(straight(server)) as link:
            seen = []
            link.on_reconnect = lambda before, now: seen.append((before, now))
            script = Script("return redis.call('INCR', KEYS[1])")
            assert await link.eval(script, ["n"], []) == 1
            first = link.identity
            await asyncio.to_thread(server.stop_blocking)
            server.start_blocking()
            await until_it_answers(link)
            assert await link.eval(script, ["n"], []) == 2
            assert seen == [(first, link.identity)]
            assert first.run_id != link.identity.run_id
    finally:
        server.stop_blocking()


async def test_link_disconnects_from_a_demoted_master(server):
    async with linked(straight(server)) as link:
        seen = []
        link.on_reconnect = lambda before, now: seen.append(now.role)
        await link.call("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(StoreUnavailable) as caught:
                await link.call("SET", "k", "v")
            assert caught.value.fate is StoreFate.REFUSED
            assert caught.value.detail.startswith("READONLY")
            assert not link.connected
        finally:
            await until_it_answers(link)
            await link.call("REPLICAOF", "NO", "ONE")
        assert await link.call("SET", "k", "v") == b"OK"
        assert seen == ["slave"]


@pytest.mark.parametrize(
    "answers",
    [
        {b"HELLO": b"-LOADING the dataset\r\n"},
        {b"HELLO": b"%0\r\n", b"INFO": b"$21\r\nrun_id:1\r\nloading:1\r\n\r\n"},
    ],
)
async def test_a_server_that_is_loading_is_not_used(answers):
    async with fake_server(answers) as address, refused(address) as (link, detail):
        assert "loading" in detail.lower()
        assert not link.connected


@pytest.mark.slow
@pytest.mark.parametrize("answer", [b"-NOAUTH no\r\n", b"HTTP/1.1\r\n\r\n", b""], ids=["refused", "foreign", "silent"])
async def test_failed_handshakes_leave_nothing_to_the_garbage_collector(answer, no_collector):
    attempts = 0

    async def locate() -> RedisAddress:
        nonlocal attempts
        attempts += 1
        return address

    async with fake_server({b"HELLO": answer}) as address:
        link = RedisLink(address, timeout=0.05, locate=locate)
        with contextlib.suppress(StoreUnavailable):
            await link.connect()
        await until(lambda: attempts > 2)
        await link.close()
        del link
    assert not garbage()


@pytest.mark.holds("operations/redis.md#redis-for-production-14")
async def test_redirected_command_is_sent_again_once_and_shifts_no_reply():
    received, ended = [], asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while command := await reader.read(4096):
                for part in command.split(b"*")[1:]:
                    received.append(part.split(b"\r\n")[2])
                    answers = {b"HELLO": b"%0\r\n", b"INFO": b"$0\r\n\r\n", b"ECHO": b"$2\r\nhi\r\n"}
                    writer.write(answers.get(received[-1], b"-MOVED 7 127.0.0.1:1\r\n"))
            writer.close()
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    link: RedisLink

    def redirected(command: bytes, future: ReplyTo, reply: str) -> bool:
        assert reply == "MOVED 7 127.0.0.1:1"
        link.forward(command, future)
        return True

    link = RedisLink(RedisAddress(port=server.sockets[0].getsockname()[1]), on_redirect=redirected)
    try:
        await link.connect()
        moved, echoed = link.call("GET", "k"), link.call("ECHO", "hi")
        with pytest.raises(StoreUnavailable) as caught:
            await moved
        assert caught.value.fate is StoreFate.REFUSED
        assert await echoed == b"hi"
        assert await link.call("ECHO", "hi") == b"hi"
        assert received.count(b"GET") == 2
    finally:
        await link.close()
        await ended.wait()
        server.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_reply_delayed_by_our_own_event_loop_is_not_overdue(server, new_loop):
    async def scenario() -> None:
        async with proxied(server) as (_, link):  # the proxy stands still with us: the reply comes after the timer
            call = link.call("ECHO", "here")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            loop_is_held_for(0.4)
            assert await call == b"here"

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


async def test_the_timeout_starts_at_the_write_and_not_at_the_call(server):
    async with linked(straight(server)) as link:
        call = link.call("BLPOP", "nothing", 0.1)
        loop_is_held_for(0.3)  # the caller computes on, and its command waits for the end of the tick
        assert await call is None


async def test_a_peer_that_does_not_speak_the_redis_protocol_is_refused():
    web = {b"HELLO": b"HTTP/1.1 400 Bad Request\r\n\r\n"}
    async with fake_server(web) as address, refused(address) as (link, detail):
        assert "not the Redis protocol" in detail
        with pytest.raises(StoreUnavailable):
            await link.call("PING")


async def test_a_closed_link_fails_every_call_and_leaves_no_task(server):
    before = asyncio.all_tasks()
    link = RedisLink(straight(server))
    await link.connect()
    call = link.call("BLPOP", "nothing", 5)
    await link.close()
    with pytest.raises(StoreUnavailable):
        await call
    with pytest.raises(StoreUnavailable):
        await link.call("PING")
    assert asyncio.all_tasks() == before


async def test_connect_that_was_cancelled_leaves_no_error_for_the_log(server):
    stray: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
    async with proxied(server) as (proxy, _):
        proxy.black_hole = True
        link = RedisLink(RedisAddress(port=proxy.port))
        connecting = asyncio.create_task(link.connect())
        await until(lambda: proxy.swallowed)
        connecting.cancel()
        await asyncio.wait([connecting])
        await link.close()
        gc.collect()
    assert stray == []


class Handler:
    """Takes replies while the connection reads, as a batch of the ledger does."""

    def __init__(self, on_reply: Callable[[], object]) -> None:
        self.on_reply = on_reply
        self.seen: list[object] = []

    def done(self) -> bool:
        return False

    def set_result(self, result: object) -> None:
        self.seen.append(result)
        self.on_reply()

    def set_exception(self, exception: Exception) -> None:
        self.seen.append(exception)


def send(link: RedisLink, command: bytes, handler: Handler) -> None:
    link.put(command, handler)
    link.flush()


async def test_reply_handler_that_sends_again_gets_the_next_reply(server):
    async with linked(straight(server)) as link:
        again = pack(("ECHO", "again"))
        handler = Handler(lambda: send(link, again, handler) if len(handler.seen) < 3 else None)
        send(link, pack(("ECHO", "first")), handler)
        behind = link.call("ECHO", "behind")
        await until(lambda: len(handler.seen) == 3)
        assert handler.seen == [b"first", b"again", b"again"]
        assert await behind == b"behind"


async def test_reply_handler_that_disconnects_fails_the_commands_behind_it_once(server):
    async with linked(straight(server)) as link:
        handler = Handler(lambda: link.disconnect("the handler"))
        after = Handler(lambda: None)
        send(link, pack(("ECHO", "first")), handler)
        behind = link.call("ECHO", "behind")
        send(link, pack(("ECHO", "last")), after)
        with pytest.raises(StoreUnavailable) as caught:
            await behind
        assert caught.value.fate is StoreFate.UNKNOWN
        assert handler.seen == [b"first"]
        assert [type(seen) for seen in after.seen] == [StoreUnavailable]
        assert await link.call("ECHO", "new") == b"new"


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        pass


async def test_late_reply_keeps_the_grace_period_for_the_next_command_of_the_same_handler():
    lost: list[str] = []
    connection = RedisConnection(
        asyncio.get_running_loop(), timeout=0.0, on_lost=lambda connection, reason, unanswered: lost.append(reason)
    )
    connection.connection_made(Wire())
    handler = Handler(lambda: connection.put(b"again", handler, again=b"") if len(handler.seen) == 1 else None)
    connection.put(b"first", handler, again=b"")
    connection.flush()
    connection._check()  # overdue: its reply has the grace to come
    connection.data_received(b"+late\r\n")
    connection.flush()
    connection._check()  # so has the second one
    assert lost == []
    connection._check()
    assert lost == ["no reply within 0 s"]
    assert [type(seen) for seen in handler.seen] == [bytes, StoreUnavailable]
