"""The first commands on a connection: login, database, and the identity of the server."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store.command import Argument, pack
from gateway.store.connection import RedisConnection, RedisReplyError
from gateway.store.redis_address import RedisAddress


class ServerIdentity(Struct, frozen=True):
    """The server that answered at connect. A new `run_id` means a restart, a new `master_replid` a failover."""

    run_id: str = ""
    master_replid: str = ""
    version: str = ""
    role: str = ""


NOBODY = ServerIdentity()


async def greet(connection: RedisConnection, address: RedisAddress) -> ServerIdentity:
    """Log in, select the database and read the server's identity; refuse a server that is still loading its data."""

    def call(*args: Argument) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection.send(pack(args), future, again=b"")
        return future

    login = (address.username or "default", address.password)
    try:
        await call("HELLO", address.protocol, *(("AUTH", *login) if address.password else ()))
    except RedisReplyError as error:
        if address.protocol != 2 or error.kind != "ERR":
            raise
        if address.password:  # some proxies do not support HELLO
            await call("AUTH", *(login if address.username else login[1:]))
    if address.db:
        await call("SELECT", address.db)
    try:
        info = info_fields(await call("INFO"))
    except RedisReplyError:  # forbidden by an ACL: failovers are then not detected, but the server is used
        return ServerIdentity()
    if info.get("loading") == "1":
        raise StoreUnavailable(detail="the server is loading its data", fate=StoreFate.NEVER_SENT)
    return ServerIdentity(
        run_id=info.get("run_id", ""),
        master_replid=info.get("master_replid", ""),
        version=info.get("valkey_version") or info.get("redis_version", ""),
        role=info.get("role", ""),
    )


def info_fields(reply: bytes) -> dict[str, str]:
    """The reply of INFO by name."""
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
