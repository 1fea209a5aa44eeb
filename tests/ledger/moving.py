"""A store in which somebody moves the account to another group before every script, and what was sent to it."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.ledger.scripts import slot
from gateway.store import Store


class Moving:
    """The only link of a store; `sent` has the hashes of the scripts, in order."""

    def __init__(self, store: Store, account: str) -> None:
        self._link = store.link(slot(account))
        self._key = slot(account)
        self._moves = 0
        self.sent: list[str] = []

    def link(self, slot_key: str) -> Moving:
        assert slot_key == self._key
        return self

    def call(self, *args: Any) -> asyncio.Future[Any]:
        if args[0] == "EVALSHA":
            self._moves += 1
            self.sent.append(args[1])
            self._link.call("HSET", self._key, "group", f"group{self._moves}")
        return self._link.call(*args)

    async def eval(self, *args: Any) -> Any:
        return await self._link.eval(*args)
