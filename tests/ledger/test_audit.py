"""The audit is clean after everything, and finds every way in which it could not be."""

import pytest

from gateway.ledger import Ledger
from gateway.ledger.gather_all import gather_bounded
from tests.ledger.records import settle
from tests.ledger.shards import without


async def busy(world):
    """A store with lines, a hold and a budgeted key."""
    key = await world.caller(balance=10_000, budget=9000)
    await settle(world.ledger, await world.admit(key, 500), 300)
    await settle(world.ledger, await world.admit(key, 500), 0)
    await world.accounts.credit("acme", 50)
    await world.admit(key, 700)
    await world.proved()
    return key


async def test_report_counts_accounts_and_lines(world):
    async with world() as w:
        await busy(w)
        await w.caller("umbra")
        report = await w.ledger.audit()
        assert (report.accounts, report.lines) == (2, 5)
        one = await w.ledger.audit("umbra")
        assert (one.accounts, one.lines) == (1, 1)


@pytest.mark.holds("README.md#model-gateway-1", "operations/audit.md#audit-9", "operations/audit.md#audit-10")
@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (("HINCRBY", "{a:acme}", "bal", 1), "balance"),
        (("HINCRBY", "{a:acme}", "held", -1), "held"),
        (("HINCRBY", "{a:acme}", "seq", 1), "seq"),
        (("HINCRBY", "{a:acme}:k:KEY", "spent", 1), "spent KEY"),
        (("HINCRBY", "{a:acme}:k:KEY", "held", 1), "key_held KEY"),
        (("DEL", "{a:acme}:rx"), "expiries"),
        (("DEL", "{a:acme}:rv"), "held"),
        (("XTRIM", "{a:acme}:lg", "MAXLEN", 3), "sequence"),
        (
            ("XADD", "{a:acme}:lg", "*", "n", 5, "rid", "x", "kind", "use", "amount", -1, "bal", 9750, "meta", "{}"),
            "running 5",
        ),
    ],
)
async def test_each_manipulation_is_found_and_named(world, command, rule):
    async with world() as w:
        key = await busy(w)
        await w.store.client.execute_command(*(str(part).replace("KEY", key.id) for part in command))
        mismatches = (await w.ledger.audit("acme")).mismatches
        assert rule.replace("KEY", key.id) in [mismatch.rule for mismatch in mismatches]
        assert all(mismatch.account == "acme" for mismatch in mismatches)
        assert all(mismatch.expected != mismatch.found for mismatch in mismatches)


async def test_long_ledgers_are_read_in_pages(world, monkeypatch):
    monkeypatch.setattr("gateway.ledger.line.PAGE", 3)
    async with world() as w:
        key = await w.caller()
        for _ in range(7):
            await settle(w.ledger, await w.admit(key), 1)
        report = await w.ledger.audit()
        assert (report.lines, report.mismatches) == (8, [])
        assert [line.n async for line in w.ledger.lines("acme")] == list(range(1, 9))


async def test_lines_since_a_time_exclude_the_earlier_ones(world):
    async with world() as w:
        key = await w.caller()
        (first,) = [line async for line in w.ledger.lines("acme")]
        while True:
            await settle(w.ledger, await w.admit(key), 1)
            last = [line async for line in w.ledger.lines("acme")][-1]
            if last.at > first.at:
                break
        assert 1 not in [line.n async for line in w.ledger.lines("acme", since=last.at)]


@pytest.mark.holds("operations/audit.md#audit-3")
async def test_unreachable_shard_is_reported_and_the_others_are_audited(world):
    async with world() as w:
        for name in ("acme", "beta", "umbra"):
            await w.caller(name)
        await w.store.client.hincrby("{a:umbra}", "bal", 1)
        report = await Ledger(without(w.store, "beta"), {}).audit()
        assert (report.accounts, report.unreachable[1:]) == (2, ["beta"])
        assert "nowhere" in report.unreachable[0]  # its server could not be searched for accounts
        assert [(found.account, found.rule) for found in report.mismatches] == [("umbra", "balance")]


async def test_three_different_faults_among_many_accounts_are_named_in_order(world):
    names = [f"account-{n:03d}" for n in range(300)]
    faults = {"account-007": "seq", "account-150": "bal", "account-299": "held"}
    async with world() as w:
        await gather_bounded((w.accounts.create(name, balance=1000) for name in names), 100)
        for name, field in reversed(faults.items()):
            await w.store.client.hincrby(f"{{a:{name}}}", field, 1)
        report = await w.ledger.audit()
        rules = [(one.account, one.rule) for one in report.mismatches]
        assert rules == [("account-007", "seq"), ("account-150", "balance"), ("account-299", "held")]
        assert (report.accounts, report.lines) == (300, 300)


async def test_unreadable_price_is_named_among_many_accounts(world):
    async with world() as w:
        await gather_bounded((w.accounts.create(f"account-{n:03d}", balance=1000) for n in range(120)), 100)
        await w.store.client.hset("{a:account-110}", mapping={"pe": "1", "p:m": "no JSON"})
        report = await w.ledger.audit()
        assert [(one.account, one.rule) for one in report.mismatches] == [("account-110", "price m")]
