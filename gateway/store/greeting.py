"""The first commands on a connection: login, database, and the identity of the server."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store.address import RedisAddress
from gateway.store.command import Argument, pack
from gateway.store.connection import RedisConnection, RedisReplyError
from gateway.store.identity import StoreGuard, identity_of


class ServerIdentity(Struct, frozen=True):
    """The server that answered at connect. A new `run_id` means a restart, a new `master_replid` a failover."""

    run_id: str = ""
    master_replid: str = ""
    version: str = ""
    role: str = ""
    policy: str = "noeviction"  # its maxmemory-policy

    def has_data_of(self, before: ServerIdentity) -> bool:
        """Whether it is the same process with the same history, so that it lacks nothing that was written."""
        return (self.run_id, self.master_replid) == (before.run_id, before.master_replid)


NO_PERMISSION = "the store's user may not run a command that the gateway needs (docs/operations/redis.md): {reply}"

EVICTED = (
    "the store has evicted {evicted} keys, which may be accounts: set maxmemory-policy noeviction, and restore the data"
)
NOBODY = ServerIdentity()


class ServerRejected(StoreUnavailable):
    """The server answers but cannot be used: it holds another store, or does not permit a command. See `detail`."""


class Replies:
    """Takes the replies to several commands; an error is kept as a value, so that no traceback refers to it."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self._found: list[Any] = []
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(self) -> bool:
        """Whether the replies are no longer needed."""
        return False

    def set_result(self, result: Any) -> None:
        """Take the next reply."""
        self._found.append(result)
        self._missing -= 1
        if not self._missing and not self._complete.done():
            self._complete.set_result(None)

    def set_exception(self, exception: Exception) -> None:
        """Take the next error."""
        self.set_result(exception)

    async def all(self) -> list[Any]:
        """The replies, and the errors among them."""
        await self._complete
        return self._found


async def ask(connection: RedisConnection, *commands: tuple[Argument, ...]) -> list[Any]:
    """Send commands in one write; return their replies and errors."""
    replies = Replies(len(commands))
    for command in commands:
        connection.send(pack(command), replies, again=b"")
    return await replies.all()


async def greet(
    connection: RedisConnection, address: RedisAddress, *, guard: StoreGuard | None = None, identity: str = ""
) -> ServerIdentity:
    """Log in, select the database and read the server's identity; refuse a server that is still loading its data.

    With a guard, the store's identity is read from the key `identity`, too; ServerRejected if the guard refuses it.
    All commands are sent in one write, because each round trip would be one more chance to lose a reply.
    """
    login = (address.username or "default", address.password)
    hello = ("HELLO", address.protocol, *(("AUTH", *login) if address.password else ()))
    rest: list[tuple[Argument, ...]] = [("SELECT", address.db)] if address.db else []
    rest.append(("INFO",))
    if guard is not None and identity:
        rest.append(("HGETALL", identity))
    first, *others = await ask(connection, hello, *rest)
    if address.protocol == 2 and isinstance(first, RedisReplyError) and first.kind == "ERR":
        first = b"OK"  # some proxies do not support HELLO
        if address.password:
            first, *others = await ask(connection, ("AUTH", *(login if address.username else login[1:])), *rest)
    if guard is None or not identity:
        return _identity(_checked([first, *others])[-1])
    found = others.pop()
    server = _identity(_checked([first, *others])[-1])
    check_identity(guard, found)
    return server


def check_identity(guard: StoreGuard, reply: Any) -> None:
    """ServerRejected unless the guard accepts the identity in a reply of HGETALL, or if it is an error."""
    if isinstance(reply, StoreUnavailable):  # another server of the cluster has that slot, and is checked itself
        return
    (fields,) = _checked([reply])
    if problem := guard.problem(identity_of(fields)):
        raise ServerRejected(detail=problem, fate=StoreFate.REFUSED)


def check_evictions(reply: bytes) -> None:
    """ServerRejected if a server has evicted keys; any of them may be an account or an API key."""
    evicted = info_fields(reply).get("evicted_keys", "0")
    if evicted != "0":
        raise ServerRejected(detail=EVICTED.format(evicted=evicted), fate=StoreFate.REFUSED)


def _checked(replies: list[Any]) -> list[Any]:
    """The replies; if one is an error, an equal one is raised, for its traceback must not refer to itself."""
    for reply in replies:
        if isinstance(reply, StoreUnavailable):
            raise StoreUnavailable(detail=reply.detail, fate=reply.fate)
        if isinstance(reply, RedisReplyError) and reply.kind == "NOPERM":
            raise ServerRejected(detail=NO_PERMISSION.format(reply=reply.detail), fate=StoreFate.REFUSED)
        if isinstance(reply, Exception):
            raise RedisReplyError(detail=getattr(reply, "detail", None) or repr(reply))
    return replies


def _identity(reply: bytes) -> ServerIdentity:
    info = info_fields(reply)
    if info.get("loading") == "1":
        raise StoreUnavailable(detail="the server is loading its data", fate=StoreFate.NEVER_SENT)
    return ServerIdentity(
        run_id=info.get("run_id", ""),
        master_replid=info.get("master_replid", ""),
        version=info.get("valkey_version") or info.get("redis_version", ""),
        role=info.get("role", ""),
        policy=info.get("maxmemory_policy", "noeviction"),
    )


def info_fields(reply: bytes) -> dict[str, str]:
    """The reply of INFO by name."""
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
