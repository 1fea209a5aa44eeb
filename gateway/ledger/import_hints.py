"""Hints for the importer: the accounts with new ledger lines, in one set of the store.

A worker collects the accounts that it settled and sends them together, outside the scripts that move money. A hint may
be lost: the importer also compares every account within ten minutes. A second set has the accounts whose balance did
not cover a call, for the notifications; what is lost there is sent with the next such call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gateway.store.links import Links

TOUCHED = "history:touched"  # the set of account names
SHORT = "notify:short"  # the set of accounts whose balance did not cover a call
DATABASE = "history:database"  # the id of the database that has the store's history
SEND_EVERY = 0.2  # seconds
SHORT_FOR = 60  # seconds that a refusal for lack of money is remembered: there may be a top-up meanwhile


class ImportHints:
    """The accounts of one process that wait to be sent; at most those that were settled since the last sending."""

    def __init__(self, links: Links, *, with_short: bool = True) -> None:
        self._links = links
        self._with_short = with_short  # whether the notifications read the second set
        self._accounts: set[str] = set()
        self._short: set[str] = set()
        self._sending: asyncio.Task[None] | None = None
        #: Note an account; called once per answered batch of settlements.
        self.add = self._accounts.add
        #: Note an account whose balance did not cover a call; called for each such refusal.
        self.short = self._short.add

    def start(self) -> None:
        """Send from now on, until `stop`."""
        self._sending = asyncio.get_running_loop().create_task(self._send_forever())

    def stop(self) -> None:
        """Send the last hints; their reply is not waited for."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        self._send()

    async def _send_forever(self) -> None:
        while True:
            await asyncio.sleep(SEND_EVERY)
            self._send()

    def _send(self) -> None:
        if self._accounts:
            send_hints(self._links, self._accounts)
            self._accounts.clear()
        if self._short:
            if self._with_short:
                call = self._links.link(SHORT).call
                call("SADD", SHORT, *self._short).add_done_callback(_forget)
                call("EXPIRE", SHORT, SHORT_FOR).add_done_callback(_forget)
            self._short.clear()


def send_hints(links: Links, accounts: Iterable[str]) -> None:
    """Send hints now; their reply is not waited for."""
    links.link(TOUCHED).call("SADD", TOUCHED, *accounts).add_done_callback(_forget)


def _forget(sent: asyncio.Future[object]) -> None:
    if not sent.cancelled():
        sent.exception()
