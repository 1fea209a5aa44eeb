"""The findings of the last audits, in the store: of all accounts, and of single ones.

An audit without findings removes those of the same accounts; one of all accounts removes all.
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from gateway.attention.finding import AuditFindings
from gateway.errors import GatewayError
from gateway.ledger import AuditReport
from gateway.store import Store

HASH = "attention:audits"
MOST = 100  # audits of single accounts with findings

_decoder = msgspec.json.Decoder(AuditFindings)


async def remember_audit(store: Store, account: str | None, report: AuditReport) -> None:
    """Keep the number of findings of an audit of an account, or of all; without the store nothing is kept."""
    link, name = store.link(HASH), account or ""
    with contextlib.suppress(GatewayError):
        if account is None and not report.unreachable:
            await _forget_all(store)
        if report.mismatches:
            if name and await link.call("HLEN", HASH) >= MOST:
                return
            found = AuditFindings(name, len(report.mismatches), time.time())
            await link.call("HSET", HASH, name, msgspec.json.encode(found))
        elif name and not report.unreachable:
            await link.call("HDEL", HASH, name)


async def read_audits(store: Store) -> list[AuditFindings]:
    """What the last audits have found; GatewayError."""
    found = []
    for text in (await store.link(HASH).call("HGETALL", HASH)).values():
        with contextlib.suppress(ValueError):
            found.append(_decoder.decode(text))
    return found


async def _forget_all(store: Store) -> None:
    await store.link(HASH).call("DEL", HASH)
