"""Accounts that begin with lines of the past: everything agrees with the lines, and they are written once."""

from gateway.ledger.backdated import PastLine, open_backdated
from tests.ledger.records import settle

HOUR = 3_600_000  # milliseconds
FIRST = 1_700_000_000_000


def lines(key_id):
    """An opening, two calls of a member's key of which one failed, and a credit."""
    call = f'{{"key":"{key_id}"}}'
    return [
        PastLine(FIRST, "open", "open", 10_000, "{}"),
        PastLine(FIRST + HOUR, "req_1", "use", -300, call, key_id, "user_1"),
        PastLine(FIRST + HOUR, "req_2", "use", 0, call, key_id, "user_1"),
        PastLine(FIRST + 2 * HOUR, "op_1", "topup", 300, "{}"),
    ]


async def test_account_with_past_lines_is_proved_by_the_audit_and_goes_on_with_calls(world):
    async with world() as w:
        fields = {"state": "active", "name": "k", "created": FIRST // 1000, "user": "user_1", "own": 1}
        key = await w.keys.store("acme", fields, show_cost=False)
        assert await open_backdated(w.store, "acme", "default", lines(key.id))
        await w.proved()
        account, stored = await w.accounts.show("acme"), await w.keys.show(key.id)
        assert (account.balance, account.created.timestamp(), account.state) == (10_000, FIRST / 1000, "active")
        assert (stored.spent, stored.last_used.timestamp()) == (300, (FIRST + HOUR) / 1000)
        found = [(line.milliseconds, line.n, line.balance) async for line in w.ledger.lines("acme")]
        assert found == [
            (FIRST, 1, 10_000),
            (FIRST + HOUR, 2, 9700),
            (FIRST + HOUR, 3, 9700),
            (FIRST + 2 * HOUR, 4, 10_000),
        ]

        await settle(w.ledger, await w.admit(await w.auth.authenticate(key.text), 500), 200)
        await w.proved()
        assert (await w.accounts.show("acme")).balance == 9800
        assert not await open_backdated(w.store, "acme", "default", lines(key.id))
        assert (await w.accounts.show("acme")).balance == 9800
        await w.proved()
