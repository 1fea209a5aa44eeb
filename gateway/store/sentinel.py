"""The master that a group of sentinels names: one link that follows it through failovers.

Every attempt to connect asks all sentinels and uses the answer with the highest configuration epoch, because an
isolated sentinel still names the former master. A server that is not a master is not accepted. A `+switch-master` of
any sentinel makes the link disconnect from a replaced master that still answers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gateway.errors import GatewayError, StoreFate, StoreUnavailable
from gateway.store.address import RedisAddress, SentinelAddress
from gateway.store.command import text_fields
from gateway.store.identity import StoreGuard
from gateway.store.link import OnReconnect, RedisLink
from gateway.store.topology import OneServer

ANSWER_WITHIN = 0.3  # seconds, of the link's 0.75 s to connect; a slower sentinel is ignored


class SentinelMaster(OneServer):
    """The topology of a master with sentinels."""

    def __init__(
        self, address: SentinelAddress, on_reconnect: OnReconnect, *, timeout: float, guard: StoreGuard | None
    ) -> None:
        link = RedisLink(address.server, timeout=timeout, locate=self._locate, guard=guard)
        super().__init__(link, on_reconnect)
        self._where = address
        self._sentinels = [
            RedisLink(one, timeout=ANSWER_WITHIN, channel="+switch-master", on_push=self._look_soon)
            for one in address.sentinels
        ]
        for sentinel in self._sentinels:
            sentinel.on_reconnect = self._look_soon  # the master may have changed while the connection was lost
        self._look: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        for sentinel in self._sentinels:
            sentinel.start()
        await super().connect()

    async def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait([self._look])
        await asyncio.gather(super().close(), *(sentinel.close() for sentinel in self._sentinels))

    # Who is the master -----------------------------------------------------------------------------------------------

    async def _locate(self) -> RedisAddress:
        answers = await asyncio.gather(*(self._ask(sentinel) for sentinel in self._sentinels))
        known = [answer for answer in answers if answer is not None]
        if not known:
            detail = f"no sentinel knows a master of {self._where.service!r}"
            raise StoreUnavailable(detail=detail, fate=StoreFate.NEVER_SENT)
        _, host, port = max(known)
        return msgspec.structs.replace(self._where.server, host=host, port=port)

    async def _ask(self, sentinel: RedisLink) -> tuple[int, str, int] | None:
        """Epoch, host and port from this sentinel; None if it does not answer or does not know them."""
        try:
            told = await sentinel.call("SENTINEL", "MASTER", self._where.service)
        except GatewayError:
            return None
        fields = text_fields(told)
        return int(fields["config-epoch"]), fields["ip"], int(fields["port"])

    def _look_soon(self, *_: Any) -> None:
        if self._look is None or self._look.done():
            self._look = asyncio.get_running_loop().create_task(self._leave_if_replaced())

    async def _leave_if_replaced(self) -> None:
        link = self._link
        try:
            master = await self._locate()
        except GatewayError:
            return
        if (master.host, master.port) != (link.address.host, link.address.port):
            link.disconnect(f"the sentinels name {master} as the master")
