"""Makes sure that what a connection wrote outlives a crash of its server, for commands that promise it to a person.

`doubt_about(link, since=identity)` waits until the server has everything of this link in its file, and, where it has
replicas, one of them has it too. A server without WAITAOF (before Redis 7.2) or without an append-only file is taken at
its word.

Sharp edge: WAITAOF is to wait for the disk, but Valkey (seen with 9.1.2) and Redis 7.4 before redis/redis#13793 may
answer when the data is written, up to a second before it is synced. So it outlives the server, and the machine only
where the file is ours to sync (`ServerHome.sync`).
"""

from __future__ import annotations

from typing import Any

from gateway.errors import StoreUnavailable
from gateway.store.connection import RedisReplyError
from gateway.store.greeting import ServerIdentity
from gateway.store.link import RedisLink

WITHIN = 5000  # ms for each of the two: a disk may take long, a person waits


async def doubt_about(link: RedisLink, *, since: ServerIdentity | None, replicated: bool) -> str:
    """What could not be made sure of, in words for the operator; empty when all is well."""
    try:
        doubt = await _doubt(link, replicated=replicated)
    except StoreUnavailable:
        since = None
    # A new connection knows nothing of what the one before wrote, and says that all of nothing is safe.
    return doubt if link.identity is since else f"the connection to {link.address} was lost right afterwards"


async def _doubt(link: RedisLink, *, replicated: bool) -> str:
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
    """None when the server knows no such thing, or may not be asked."""
    try:
        return await link.call(*command)
    except RedisReplyError:
        return None
