"""A store in which somebody moves the account to another group before every script, and what was sent to it."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.store import Store
from gateway.store.connection import ReplyTo
from gateway.store.links import slot


class Moving:
    """The only link of a store; `sent` has the hashes of the scripts, in order."""

    def __init__(self, store: Store, account: str) -> None:
        self._link = store.link(slot(account))
        self._key = slot(account)
        self._moves = 0
        self.sent: list[str] = []

    @property
    def links(self) -> list[Any]:
        return [self]

    def link(self, slot_key: str) -> Moving:
        assert slot_key == self._key
        return self

    def put(self, command: bytes, reply: ReplyTo) -> None:
        self._move(command.split(b"\r\n")[4].decode())
        self._link.put(command, reply)

    def flush(self) -> None:
        self._link.flush()

    def call(self, *args: Any) -> asyncio.Future[Any]:
        if args[0] == "EVALSHA":
            self._move(args[1])
        return self._link.call(*args)

    def _move(self, script: str) -> None:
        self._moves += 1
        self.sent.append(script)
        self._link.call("HSET", self._key, "group", f"group{self._moves}")

    async def eval(self, *args: Any) -> Any:
        return await self._link.eval(*args)
