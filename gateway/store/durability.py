"""Waits until the writes of a connection survive a crash of its server, for administrative commands.

`unconfirmed_on(link, since=identity)` waits until the server has all writes of this link in its file, and, if it has
replicas, one of them has them, too. A server without WAITAOF (before Redis 7.2) or without an append-only file is not
checked.

Sharp edge: WAITAOF should wait for the disk, but Valkey (seen with 9.1.2) and Redis 7.4 before redis/redis#13793 may
answer when the data are written, up to a second before they are synced. So they survive a crash of the server, and a
crash of the machine only if the gateway can sync the file itself (`ServerHome.sync`).
"""

from __future__ import annotations

from typing import Any

from gateway.errors import StoreUnavailable
from gateway.store.connection import RedisReplyError
from gateway.store.greeting import ServerIdentity
from gateway.store.link import RedisLink

WITHIN = 5000  # ms for each of the two; a disk may be slow


async def unconfirmed_on(link: RedisLink, *, since: ServerIdentity | None, replicated: bool) -> str:
    """The condition that was not met, as a text for the operator; empty if all were met."""
    try:
        condition = await _unmet(link, replicated=replicated)
    except StoreUnavailable:
        since = None
    # A new connection has no writes, so its reply says nothing about the writes of the former one.
    return condition if link.identity is since else f"the connection to {link.address} was lost right afterwards"


async def _unmet(link: RedisLink, *, replicated: bool) -> str:
    written = await _answer(link, "WAITAOF", 1, 0, WITHIN)
    if written is not None and written[0] < 1:
        return f"{link.address} did not say within {WITHIN // 1000} s that it is on its disk"
    about = await _answer(link, "INFO", "replication")
    if replicated or (about is not None and b"connected_slaves:0" not in about):
        replicas = await _answer(link, "WAIT", 1, WITHIN)
        if replicas is not None and replicas < 1:
            return f"no replica of {link.address} said within {WITHIN // 1000} s that it has it"
    return ""


async def _answer(link: RedisLink, *command: str | int) -> Any:
    """The reply; None if the server does not know the command or does not permit it."""
    try:
        return await link.call(*command)
    except RedisReplyError:
        return None
