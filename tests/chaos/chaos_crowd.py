"""Five thousand unfinished heads from one address, three or twenty before each port: another address is served.

Of 30 requests of another address, five a second, 28 are answered within 2 s, and each head is cut within 15 s. That
holds on a machine without other work. `python -m benchmarks.crowd` prints the figures.
"""

from __future__ import annotations

import pytest

from tests.crowds import Limited, crowded, started
from tests.processes.conftest import Yard
from tests.processes.conftest import yard as yard


@pytest.mark.holds("operations/network.md#connections-4")
@pytest.mark.parametrize("addresses", [1, 3, 20])
async def test_another_address_is_served_beside_five_thousand_unfinished_heads(yard: Yard, addresses: int) -> None:
    await crowded(*await started(yard, Limited), addresses)
