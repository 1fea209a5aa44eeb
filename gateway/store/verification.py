"""Checks during operation that a server still holds the store it held when the connection was made."""

from __future__ import annotations

from gateway.store.greeting import ServerRejected, check_evictions, check_identity
from gateway.store.identity import IDENTITY, tagged
from gateway.store.link import RedisLink


async def verify(link: RedisLink) -> None:
    """ServerRejected if the server no longer holds the expected store; the link then waits for the right one.

    To be called when a reply says that something known is not there, such as an account.
    """
    tag = link.tag()
    if link.guard is None or tag is None:
        return
    reply = await link.call_repeatable("HGETALL", tagged(IDENTITY, tag))
    try:
        check_identity(link.guard, reply)
    except ServerRejected as error:
        link.disconnect(error.detail or "")
        raise
    if link.identity.policy != "noeviction":
        check_evictions(await link.call_repeatable("INFO", "stats"))
