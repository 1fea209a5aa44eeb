"""An own price holds on every worker as soon as the command that sets it has returned."""

import asyncio

import pytest

from gateway.ledger import LedgerLine
from tests.polling import until
from tests.processes.conftest import Serve
from tests.processes.served import Served

#: What the answer of "quick" costs in 1e-9: three tokens of output, and one of input at 1000 per million.
LISTED = 1_000_000 + 3 * 2_000_000
STEPS = (("0.5", LISTED // 2), ("1.37", LISTED * 137 // 100), ("0", 0))


class Calls:
    """Calls that follow each other on several connections, with the price that had been set when each began."""

    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway
        self._going = True
        self.factor = "1"  # that the last command has set
        self.began: dict[str, str] = {}  # that factor at the start of each call, by its request id

    async def run(self) -> None:
        """Call until `stop`."""
        while self._going:
            factor = self.factor
            answer = await self._gateway.chat()
            assert answer.status == 200
            headers = {name.lower(): value for name, value in answer.headers.items()}
            self.began[headers["x-request-id"]] = factor

    def stop(self) -> None:
        """Make no further calls."""
        self._going = False


@pytest.mark.holds("prices.md#prices-of-accounts-3")
async def test_own_price_is_charged_by_every_worker_as_soon_as_the_command_has_returned(serve: Serve) -> None:
    gateway = await serve(workers=2)
    calls = Calls(gateway)
    tasks = [asyncio.create_task(calls.run()) for _ in range(6)]
    await until(lambda: calls.began)
    for factor, _ in STEPS:
        await gateway.command("accounts", "price", "test", "quick", "--factor", factor)
        calls.factor = factor
        seen = len(calls.began)
        await until(lambda seen=seen: len(calls.began) > seen + 20)
    calls.stop()
    await asyncio.gather(*tasks)
    costs = {"1": LISTED, **dict(STEPS)}
    order = list(costs)

    async def charged() -> dict[str, LedgerLine] | None:
        lines = {line.request_id: line for line in await gateway.charges()}
        return lines if calls.began.keys() <= lines.keys() else None

    lines = await until(charged)  # a settlement may still be on its way when its answer has come
    for request_id, factor in calls.began.items():
        later = order[order.index(factor) :]  # a call that began before a command may be admitted after it
        assert -lines[request_id].amount in [costs[one] for one in later]
    assert {-line.amount for line in lines.values()} == set(costs.values())
    await gateway.proved()
