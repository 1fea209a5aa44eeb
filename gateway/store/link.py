"""Redis calls over one connection that reconnects; the calls of one event-loop tick share a round trip.

::

    link = RedisLink(RedisAddress(path="var/store/valkey.sock"))
    await link.connect()
    balance = await link.call("HGET", "{a:acme}", "bal")        # bytes, int, None, list, dict: the types of RESP3
    receipt = await link.eval(Script(source), ["{a:acme}"], [request_id, amount])

Sharp edge: these calls change balances, so a command whose fate is unknown is not sent twice, unless it is repeatable
(`resend`). A command without a reply for `timeout` seconds, or whose connection is lost, fails with `StoreUnavailable`;
unless its `fate` is unknown, it may be repeated. A repeatable command is sent again on another connection: after each
loss, and when its reply is later than a fifth of `timeout`. It fails `timeout` after it was sent first, and when
`MOST_LOSSES` connections were lost in place of its own reply.

After a loss, calls wait for the reconnect until `timeout` has passed since the loss; after that they fail at once. They
also fail at once after a server did not reply to anything for `timeout`. One link is for one server, or for one role
that moves between servers: with `locate`, every attempt to connect first asks for the current master, and accepts no
other server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from gateway.errors import GatewayError, StoreFate, StoreUnavailable
from gateway.store.address import RedisAddress
from gateway.store.command import Argument, Script, pack
from gateway.store.command_queue import CommandQueue
from gateway.store.connection import (
    Redirect,
    RedisConnection,
    RedisReplyError,
    ReplyTo,
    Unanswered,
)
from gateway.store.greeting import (
    NOBODY,
    ServerIdentity,
    ServerRejected,
    greet,
)
from gateway.store.identity import IDENTITY, StoreGuard, tagged
from gateway.store.reconnect_pace import ReconnectPace
from gateway.store.resend import READS, RepeatableCall, ResentReply
from gateway.store.transport import Transport

MAX_STANDBY = 4  # attempts to replace a late connection at the same time
MOST_LOSSES = 8  # of connections, each by the reply to the same command; then it fails
SILENCE_WAIT = 0.03  # seconds that calls wait for a reconnect after a server replied to nothing
CONNECT_TIMEOUT = 0.75  # seconds, for calls

OnReconnect = Callable[[ServerIdentity, ServerIdentity], None]  # (before, now)


@dataclass(eq=False, repr=False, slots=True)
class RedisLink:
    """Calls to one server: pipelined per tick, limited in number, repeated only if repeatable. Reconnects."""

    address: RedisAddress
    _: KW_ONLY
    timeout: float = 0.25
    max_in_flight: int = 10_000
    locate: Callable[[], Awaitable[RedisAddress]] | None = None
    on_redirect: Redirect | None = None
    guard: StoreGuard | None = None  # which store the server must hold
    tag: Callable[[], str | None] = lambda: ""  # hash tag of a slot that the server has; None if none is known
    channel: str = ""  # subscribed to at every connect
    on_push: Callable[[list[Any]], None] | None = None
    on_reconnect: OnReconnect | None = None
    on_lost: Callable[[], None] | None = None
    identity: ServerIdentity = NOBODY  # of the server seen at the last connect
    problem: str = ""  # why the server at hand is not used, though it answers
    _loop: asyncio.AbstractEventLoop | None = None
    _task: asyncio.Task[None] | None = None
    _attempt: asyncio.Future[None] | None = None  # the attempt that `connect` awaits
    _connection: RedisConnection | None = None
    _loaded: set[str] = field(default_factory=set)  # scripts that this connection's server has
    _queue: CommandQueue = field(default_factory=CommandQueue)  # calls that wait for a reconnect
    _retired: set[RedisConnection] = field(default_factory=set)  # replaced, with commands that may be answered
    _standby: set[asyncio.Task[None]] = field(default_factory=set)  # open connections in place of a late one
    _greeted: float = 0.0  # loop time at which a server replied to a greeting last
    _reason: str = "not connected yet"
    _transport: Transport = field(default_factory=Transport)
    _pace: ReconnectPace = field(default_factory=ReconnectPace)

    @property
    def connect_timeout(self) -> float:
        """Seconds of an attempt to connect: a command that is patient with replies is so here, too."""
        return max(CONNECT_TIMEOUT, self.timeout / 4)

    @property
    def connected(self) -> bool:
        """Whether a call would be written in this tick."""
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        """Commands without a reply, including those that wait for a reconnect."""
        return len(self._queue) + (self._connection.in_flight if self._connection else 0)

    async def connect(self) -> None:
        """Connect, or raise StoreUnavailable; in both cases the link keeps reconnecting until `close`."""
        if self.connected:
            return
        self.start()
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()
            self._attempt.add_done_callback(_forget)  # a caller that was cancelled does not read its error
        await asyncio.shield(self._attempt)

    def start(self) -> None:
        """Begin to connect; calls wait for it as they would for a reconnect."""
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._queue.open(self.timeout, self._fail_queue)
            self._task = self._loop.create_task(self._stay_connected())

    def disconnect(self, reason: str) -> None:
        """Close the connection and connect again."""
        if self._connection is not None:
            self._connection.abort(reason)

    async def close(self) -> None:
        """Fail all pending commands and stop reconnecting."""
        self._reason = "the link is closed"
        tasks = [task for task in (self._task, *self._standby) if task is not None]
        self._task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._connection is not None:
            self._connection.abort(self._reason)
        for connection in list(self._retired):
            connection.abort(self._reason)
        self._fail_queue()
        self._attempted(StoreUnavailable(detail=self._reason, fate=StoreFate.NEVER_SENT))

    def call(self, *args: Argument) -> asyncio.Future[Any]:
        """Send one command in this tick's write. The future gets all errors, except TypeError for a wrong argument.

        Commands of `READS` are repeatable.
        """
        if args[0] in READS:
            return self.call_repeatable(*args)
        command = pack(args)
        future: asyncio.Future[Any] = (self._loop or asyncio.get_running_loop()).create_future()
        connection = self._usable(command, future)
        if connection is not None:
            connection.send(command, future, again=command)
        return future

    def call_repeatable(self, *args: Argument) -> asyncio.Future[Any]:
        """`call` for a command that may be executed twice; it is sent again if its reply is late or lost."""
        command = pack(args)
        future = RepeatableCall(loop=self._loop or asyncio.get_running_loop())
        connection = self._usable(command, future)
        if connection is not None:
            connection.send(command, future, again=command)
        return future

    def put(self, command: bytes, reply: ReplyTo) -> None:
        """Queue a packed command, whose reply goes to `reply`; the caller calls `flush` in this tick."""
        connection = self._usable(command, reply)
        if connection is not None:
            connection.put(command, reply, again=command)

    def _usable(self, command: bytes, reply: ReplyTo) -> RedisConnection | None:
        """The connection; None when there is none that can take the command, which then waits or has failed."""
        connection = self._connection
        if connection is None:
            self._wait_in_line(command, reply)
            return None
        if connection.in_flight >= connection.most:
            self._failed("too many commands in flight", reply)
            return None
        return connection

    def flush(self) -> None:
        """Write the commands of this tick now; those that wait for a connection keep waiting."""
        if self._connection is not None:
            self._connection.flush()

    def forward(self, command: bytes, future: ReplyTo, *, asking: bool = False) -> None:
        """Send a packed command that another server redirected here; `asking` for a slot that is being moved."""
        if asking:
            self.call("ASKING").add_done_callback(_forget)
        if self._connection is not None:
            self._connection.send(command, future, again=b"")
        else:
            self._wait_in_line(command, future, may_move=False)

    async def eval(
        self, script: Script, keys: Sequence[str | bytes], args: Sequence[Argument], *, repeatable: bool = False
    ) -> Any:
        """Run a script by its hash; the first use on a connection sends the source in the same write."""
        call = self.call_repeatable if repeatable else self.call
        if script.sha1 not in self._loaded:
            self._loaded.add(script.sha1)
            self.call("SCRIPT", "LOAD", script.source).add_done_callback(_forget)
        try:
            return await call("EVALSHA", script.sha1, len(keys), *keys, *args)
        except RedisReplyError as error:
            if error.kind != "NOSCRIPT":
                raise
        # The scripts were flushed, or a redirection ended at a server without them. The script did not run, so it may
        # be sent again, with its source, because this call may be redirected, too.
        self._loaded.discard(script.sha1)
        return await call("EVAL", script.source, len(keys), *keys, *args)

    # While there is no connection ------------------------------------------------------------------------------------

    def _wait_in_line(self, command: bytes, reply: ReplyTo, *, may_move: bool = True) -> None:
        if self._loop is None or not self._queue.is_open:
            self._failed(self._reason, reply)
        elif not self._queue.put(command, reply, self._loop.time(), may_move=may_move, most=self.max_in_flight):
            self._failed("too many commands wait for a connection", reply)

    def _failed(self, reason: str, reply: ReplyTo) -> None:
        if not reply.done():
            reply.set_exception(StoreUnavailable(detail=reason, fate=StoreFate.NEVER_SENT))

    def _fail_queue(self) -> None:
        self._loaded.clear()
        for _, future, _, _ in self._queue.take():
            self._failed(self._reason, future)

    # Connecting ------------------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                async with asyncio.timeout(self.connect_timeout):
                    connection, identity = await self._open()
            except (OSError, ValueError, GatewayError) as error:  # TimeoutError is an OSError
                self._reason = _reason(error)
                rejected = isinstance(error, ServerRejected)
                self.problem = self._reason if rejected else ""
                kind = ServerRejected if rejected else StoreUnavailable
                self._attempted(kind(detail=self._reason, fate=StoreFate.NEVER_SENT))
            else:
                if self._connection is None:
                    self._take_up(connection, identity)
                else:  # a standby was faster
                    connection.abort("not needed")
            while self._connection is not None:  # a standby may replace it
                await asyncio.wait([self._connection.lost])  # a plain await would cancel the future with the task
            await asyncio.sleep(self._pace.pause(loop.time() - started))

    def _take_up(self, connection: RedisConnection, identity: ServerIdentity) -> None:
        """Use the new connection for all calls, first for those that waited for it."""
        if connection.lost.done():
            return
        same = self._connection is not None and identity == self.identity  # only the connection is another one
        reconnected = self.identity is not NOBODY and not same
        before, self.identity = self.identity, identity
        self._connection, self.problem = connection, ""
        connection.adopt_queue(self._queue.take())
        self._attempted(None)
        if reconnected and self.on_reconnect is not None:
            asyncio.get_running_loop().call_soon(self.on_reconnect, before, identity)

    def _attempted(self, error: StoreUnavailable | None) -> None:
        attempt, self._attempt = self._attempt, None  # the traceback of a stored error would refer to this link
        if attempt is not None and not attempt.done():
            if error is None:
                attempt.set_result(None)
            else:
                attempt.set_exception(error)

    async def _open(self) -> tuple[RedisConnection, ServerIdentity]:
        loop = asyncio.get_running_loop()
        if self.locate is not None:
            self.address = await self.locate()
        address = self.address

        def protocol() -> RedisConnection:
            return RedisConnection(
                loop,
                timeout=self.timeout,
                on_lost=self._connection_lost,
                on_late=self._is_late,
                max_in_flight=self.max_in_flight,
                on_redirect=self.on_redirect,
                on_push=self.on_push,
            )

        connection = await self._transport.open(protocol, address)
        try:
            tag = self.tag()
            key = "" if tag is None else tagged(IDENTITY, tag)
            identity = await greet(connection, address, guard=self.guard, identity=key)
            self._greeted = loop.time()
            if self.locate is not None and identity.role not in ("master", ""):
                raise StoreUnavailable(detail=f"{address} is no master yet", fate=StoreFate.NEVER_SENT)
            if self.channel:
                connection.send_no_reply(pack(("SUBSCRIBE", self.channel)))
            return connection, identity
        except BaseException:
            connection.abort("the greeting failed")
            raise

    def _connection_lost(self, connection: RedisConnection, reason: str, unanswered: list[Unanswered]) -> None:
        self._retired.discard(connection)
        current = connection is self._connection
        if current:
            self._connection = None
            self._loaded.clear()
            if self._task is not None:
                self._reason = reason
                self._queue.open(self._wait_after_loss(connection), self._fail_queue)
                if self.on_lost is not None:
                    self.on_lost()
        for command, reply, sent, oldest in unanswered:
            resent = self._resent(reply, sent)
            if current or not resent.drop_copy():  # of a late connection: the one after it has a copy
                self._send_again(command, resent, sent, reason, oldest=oldest)

    def _wait_after_loss(self, connection: RedisConnection) -> float:
        """Seconds that calls wait for another connection; few if the server is silent on every connection."""
        assert self._loop is not None
        silent = connection.silent and self._loop.time() - self._greeted > self.timeout
        return SILENCE_WAIT if silent else self.timeout

    # Repeatable commands ---------------------------------------------------------------------------------------------

    def _send_again(self, command: bytes, reply: ResentReply, sent: float, reason: str, *, oldest: bool) -> None:
        """Send a command of a lost connection once more, or fail it; `oldest`: it is its reply that was lost."""
        assert self._loop is not None
        given_up = oldest and reply.lose() >= MOST_LOSSES
        if given_up or self._task is None or self._loop.time() >= sent + self.timeout:
            reply.set_exception(StoreUnavailable(detail=reason, fate=StoreFate.UNKNOWN))
            return
        connection = self._usable(command, reply)
        if connection is not None:
            connection.send(command, reply, again=command)

    def _is_late(self, connection: RedisConnection) -> None:
        """Open another connection, because replies to repeatable commands are late on this one."""
        if connection is not self._connection or self._task is None or self.channel:
            return
        if len(self._standby) < MAX_STANDBY:
            task = asyncio.get_running_loop().create_task(self._replace(connection))
            self._standby.add(task)
            task.add_done_callback(self._standby.discard)

    async def _replace(self, late: RedisConnection) -> None:
        """Use a new connection, unless the late one answers meanwhile; both may answer its repeatable commands."""
        try:
            async with asyncio.timeout(self.connect_timeout):
                connection, identity = await self._open()
        except (OSError, ValueError, GatewayError):
            return  # `late` asks again while it is late
        if self._connection is None:
            self._take_up(connection, identity)
        elif self._connection is late and late.is_late() and not connection.lost.done():
            self._retired.add(late)
            self._take_up(connection, identity)
            self._copy_commands(late, connection)
            asyncio.get_running_loop().call_later(self.timeout, late.abort, "replaced by another connection")
        else:
            connection.abort("not needed")

    def _resent(self, reply: ReplyTo, sent: float) -> ResentReply:
        """Where the replies to all copies of a command go; it may be that already."""
        if isinstance(reply, ResentReply):
            return reply
        loop = asyncio.get_running_loop()
        return ResentReply(loop, reply, deadline=sent + self.timeout, on_result=self._pace.helped)

    def _copy_commands(self, late: RedisConnection, connection: RedisConnection) -> None:
        for command, reply in late.replace_repeatable(self._resent):
            assert isinstance(reply, ResentReply)
            reply.add_copy()
            connection.send(command, reply, again=command)


def _reason(error: Exception) -> str:
    if isinstance(error, GatewayError):
        return error.detail or error.message  # its fate is that of the greeting, not that of the waiting calls
    if isinstance(error, TimeoutError):
        return "the connection attempt timed out"
    return str(error) or type(error).__name__


def _forget(future: asyncio.Future[Any]) -> None:
    # Of SCRIPT LOAD: its failure shows as NOSCRIPT or as the same loss on the EVALSHA behind it.
    if not future.cancelled():
        future.exception()
