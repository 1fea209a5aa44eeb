"""Sessions of `GET /v1/realtime`: events in both directions, and what each response costs."""

from __future__ import annotations

import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client, settled
from tests.api.realtime.conftest import PATH, RealtimeUpstream, talking
from tests.polling import until


async def test_fake_answers(client: Client, accounts: Accounts) -> None:
    async with talking(client, "/v1/realtime?model=fake") as talk:
        events = await talk.ask("Hi there")
        assert "response.output_audio.delta" in {event["type"] for event in events}
        usage = events[-1]["response"]["usage"]
        print(usage)
    account = await settled(accounts)
    print(account)
