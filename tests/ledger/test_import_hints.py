"""Workers name the accounts they settled to the importer, without a command of their own per call."""

from __future__ import annotations

import json

from gateway.amounts import NANO
from gateway.ledger.import_hints import SHORT, TOUCHED, ImportHints
from tests.ledger.records import settle
from tests.polling import until


async def test_account_of_a_settled_call_is_hinted(gateway, http_client, base_url, bearer) -> None:
    await gateway.store.client.delete(TOUCHED)
    body = json.dumps({"model": "fake-chat", "messages": [{"role": "user", "content": "Hi"}]})
    answer = await http_client.fetch(f"{base_url}/v1/chat/completions", method="POST", headers=bearer, body=body)
    assert answer.code == 200

    async def hinted() -> bool:
        return await gateway.store.client.smembers(TOUCHED) == {b"acme"}

    await until(hinted)


async def test_account_whose_balance_does_not_cover_a_call_is_noted(
    gateway, ledger, http_client, base_url, bearer
) -> None:
    gateway.import_hints._with_short = True  # as with a webhook in [notify]
    await ledger.credit("acme", -10 * NANO + 5, kind="adj")
    body = json.dumps({"model": "fake-chat", "messages": [{"role": "user", "content": "Hi"}]})
    answer = await http_client.fetch(
        f"{base_url}/v1/chat/completions", method="POST", headers=bearer, body=body, raise_error=False
    )
    assert answer.code == 429

    async def noted() -> bool:
        return await gateway.store.client.smembers(SHORT) == {b"acme"}

    await until(noted)


async def test_credit_and_opening_are_hinted(world) -> None:
    async with world() as w:
        await w.accounts.create("acme", balance=1)
        await w.ledger.credit("acme", 5)
        assert await w.store.client.smembers(TOUCHED) == {b"acme"}


async def test_many_settlements_of_an_account_are_one_hint(world) -> None:
    async with world() as w:
        key = await w.caller()
        await w.store.client.delete(TOUCHED)
        hints = ImportHints(w.store)
        w.ledger._writer._on_lines = hints.add
        for _ in range(20):
            await settle(w.ledger, await w.admit(key), 1)
        before = (await w.store.client.info("commandstats"))["cmdstat_sadd"]["calls"]
        hints.stop()
        await w.store.ping()
        after = (await w.store.client.info("commandstats"))["cmdstat_sadd"]["calls"]
        assert after - before == 1
        assert await w.store.client.smembers(TOUCHED) == {b"acme"}
