"""A worker's questions about usage to the console process: few at a time, so that history never delays calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec

from gateway.errors import ConcurrencyLimited, Unavailable
from gateway.history.usage_question import ReceiptQuestion, SettledCall, UsageQuestion
from gateway.runtime.local_socket import ANSWER_WITHIN, RECEIPT, USAGE, LocalClient

AT_ONCE = 8  # questions of one worker
AT_ONCE_OF_ACCOUNT = 2  # so that one account leaves room for others


class UsageClient:
    """Asks over the local socket."""

    def __init__(self, data_dir: Path) -> None:
        self._client = LocalClient(data_dir)
        self._free = asyncio.Semaphore(AT_ONCE)
        self._asking: Counter[str] = Counter()  # by account

    async def usage(self, question: UsageQuestion) -> bytes:
        """The JSON document; ConcurrencyLimited, Unavailable, InvalidValue."""
        return await self._ask(USAGE, question.account, msgspec.msgpack.encode(question))

    async def receipt(self, question: ReceiptQuestion) -> SettledCall | None:
        """The call; None if the key has no such settled call. ConcurrencyLimited, Unavailable."""
        answer = await self._ask(RECEIPT, question.account, msgspec.msgpack.encode(question))
        return msgspec.msgpack.decode(answer, type=SettledCall | None)

    async def _ask(self, name: str, account: str, payload: bytes) -> bytes:
        if self._asking[account] >= AT_ONCE_OF_ACCOUNT:
            raise ConcurrencyLimited("Too many questions about usage at once; try again in a moment", retry_after=1.0)
        self._asking[account] += 1
        try:
            async with asyncio.timeout(ANSWER_WITHIN), self._free:
                return await self._client.ask(name, payload)
        except TimeoutError:
            raise Unavailable("The usage cannot be read now; try again in a moment") from None
        finally:
            self._asking[account] -= 1
            if not self._asking[account]:
                del self._asking[account]
