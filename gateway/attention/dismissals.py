"""Which findings a person does not want to see for a time. A finding that ends and begins again is another one."""

from __future__ import annotations

from gateway.attention.finding import Finding
from gateway.store import Store

HASH = "attention:dismissed"
KEPT_FOR = 8 * 24 * 3600  # seconds after the last one
MOST = 2000  # fields; the first to end go when there are more


def field_of(user: str, finding: Finding) -> str:
    """The name of a dismissal."""
    return f"{user} {int(finding.since)} {finding.id}"


async def read_dismissals(store: Store) -> dict[str, float]:
    """When each ends, in Unix seconds; GatewayError."""
    flat = await store.link(HASH).call("HGETALL", HASH)
    return {name.decode(errors="replace"): float(until) for name, until in flat.items()}


async def dismiss(store: Store, user: str, finding: Finding, seconds: float, *, now: float) -> tuple[str, float]:
    """Do not show a finding to a user for so long; returns the dismissal and its end."""
    link, name, until = store.link(HASH), field_of(user, finding), now + seconds
    known = await read_dismissals(store)
    ended = [one for one, end in known.items() if end <= now]
    lasting = sorted((one for one in known if one not in ended), key=known.__getitem__)
    if gone := [*ended, *lasting[: max(0, len(lasting) - MOST + 1)]]:
        await link.call("HDEL", HASH, *gone)
    await link.call("HSET", HASH, name, repr(until))
    await link.call("EXPIRE", HASH, KEPT_FOR)
    return name, until
