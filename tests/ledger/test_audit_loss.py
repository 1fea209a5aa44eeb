"""The audit finds what is missing altogether or was charged wrongly, and goes on after what it cannot read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.ledger import AuditReport, Hold, Ledger
from gateway.ledger.auditing import reader
from gateway.ledger.price_tables import store_prices
from tests.ledger.records import book, quote_of, record_of, settle
from tests.world import World

A = "{a:acme}"
USAGE = Usage(in_text=10, out_text=5)
PRICE = Price(version="v1", input=2_000_000, output=4_000_000, service_tier_multiplier={"flex": (1, 2)})
DEARER = structs.replace(PRICE, version="v2", input=3_000_000)


async def busy(w: World) -> str:
    """Two accounts with lines, holds and a key each; the id of the first one's key."""
    for name in ("acme", "umbra"):
        key = await w.caller(name, balance=10_000, budget=9000)
        await settle(w.ledger, await w.admit(key, 500), 300)
        await w.admit(key, 700)
        if name == "acme":
            first = key.id
    assert await findings(w.ledger) == []
    return first


async def findings(ledger: Ledger, **arguments: Any) -> list[tuple[str, str]]:
    """Account and rule of every mismatch."""
    return [(found.account, found.rule) for found in (await ledger.audit(**arguments)).mismatches]


@pytest.mark.holds(
    "operations/audit.md#audit-1",
    "operations/audit.md#audit-5",
    "operations/audit.md#audit-6",
    "operations/audit.md#audit-13",
)
@pytest.mark.parametrize("page", [500, 0], ids=["at once", "in pages"])
@pytest.mark.parametrize(
    ("commands", "rules"),
    [
        ([("SREM", "accounts", "acme")], ["index"]),
        ([("DEL", A)], ["account"]),
        ([("DEL", A), ("SREM", "accounts", "acme")], ["account", "index"]),
        ([("DEL", A, f"{A}:ks", f"{A}:k:KEY", f"{A}:rv", f"{A}:rx"), ("SREM", "accounts", "acme")],
         ["account", "key KEY", "index"]),
        ([("SREM", f"{A}:ks", "KEY")], ["key KEY"]),
        ([("ZADD", f"{A}:rx", 2**53, "HOLD")], ["lease HOLD"]),
        ([("ZADD", f"{A}:cc:KEY", 2**53, "other")], ["lease other"]),
        ([("ZADD", f"{A}:cc", 2**53, "other")], ["lease other"]),
        ([("SET", f"{A}:cc", "a text")], ["leases"]),
        ([("HSET", f"{A}:rv", "HOLD", "no hold")], ["hold HOLD"]),
        ([("SET", f"{A}:ks:o", "a text")], ["order"]),
        ([("HSET", A, "bal", "a lot")], ["unreadable"]),
        ([("DEL", f"{A}:rv"), ("SET", f"{A}:rv", "a text")], ["unreadable"]),
        ([("DEL", f"{A}:lg"), ("SET", f"{A}:lg", "a text")], ["unreadable"]),
        ([("HSET", f"{A}:ca", "n", "many", "id", "1-1", "bal", "0", "hash", "")], ["unreadable"]),
    ],
)  # fmt: skip
async def test_loss_and_damage_are_found_and_the_other_account_is_audited(
    world, monkeypatch: pytest.MonkeyPatch, commands: list[tuple[Any, ...]], rules: list[str], page: int
):
    monkeypatch.setattr(reader, "PAGE", page or 1)
    if not page:
        monkeypatch.setattr(reader, "_snapshot", _without_contents(reader._snapshot))
    async with world() as w:
        key_id = await busy(w)
        (hold,) = [name.decode() for name in await w.store.client.hkeys(f"{A}:rv")]
        for command in commands:
            names = [str(part).replace("KEY", key_id).replace("HOLD", hold) for part in command]
            await w.store.client.execute_command(*names)
        expected = [("acme", rule.replace("KEY", key_id).replace("HOLD", hold)) for rule in rules]
        assert await findings(w.ledger) == expected
        await w.store.client.hincrby("{a:umbra}", "bal", 1)
        assert ("umbra", "balance") in await findings(w.ledger)


def _without_contents(snapshot: Any) -> Any:
    """A snapshot that never has the contents, so that they are read in pages."""

    async def head(*arguments: Any, most: int) -> Any:
        return await snapshot(*arguments, most=-1)

    return head


@pytest.mark.holds("operations/audit.md#audit-8")
async def test_lost_hash_of_a_key_is_found(world):
    async with world() as w:
        key_id = await busy(w)
        await w.store.client.delete(f"{A}:k:{key_id}")
        assert ("acme", f"key {key_id}") in await findings(w.ledger)


@pytest.mark.holds("operations/audit.md#audit-8")
async def test_name_that_a_killed_command_left_in_the_set_of_keys_is_no_finding(world):
    async with world() as w:
        await busy(w)
        await w.store.client.sadd(f"{A}:ks", "key_never_written")
        assert await findings(w.ledger) == []


@pytest.mark.holds("operations/audit.md#audit-7")
async def test_emptied_store_is_found_by_the_expected_number_of_accounts(world):
    async with world() as w:
        await busy(w)
        assert await findings(w.ledger, expected=2) == []
        assert await findings(w.ledger, expected=3) == [("*", "accounts")]
        await w.store.client.flushall()
        assert await findings(w.ledger, expected=1) == [("*", "accounts")]


# Lines ---------------------------------------------------------------------------------------------------------------


async def rewrite(
    w: World, change: Callable[[int, dict[bytes, bytes]], dict[bytes, bytes]], *, account: str = "acme"
) -> None:
    """Replace every line of the account by what `change` makes of its number and fields."""
    client: Any = w.store.client
    name = f"{{a:{account}}}:lg"
    entries = await client.xrange(name)
    await client.delete(name)
    for id_, fields in entries:
        await client.xadd(name, change(int(fields[b"n"]), fields), id=id_)


def with_meta(number: int, **values: Any) -> Callable[[int, dict[bytes, bytes]], dict[bytes, bytes]]:
    """A change of the meta of one line; a value of None is left out."""

    def change(n: int, fields: dict[bytes, bytes]) -> dict[bytes, bytes]:
        if n != number:
            return fields
        meta = {**msgspec.json.decode(fields[b"meta"]), **values}
        kept = {name: value for name, value in meta.items() if value is not None}
        return {**fields, b"meta": msgspec.json.encode(kept)}

    return change


async def priced(w: World, *, tier: str | None = None, balance: int = 10_000, hold: int = 500) -> Hold:
    """Settle one call at a stored price, with line number 2; the hold of another call that runs."""
    await store_prices(w.store, [PRICE, DEARER])
    key = await w.caller(balance=balance)
    held: Hold = await w.ledger.admit("req_1", key, quote_of(hold, version="v1"))
    record = record_of(PRICE.cost(USAGE, service_tier=tier), usage=USAGE)
    await book(w.ledger, held, structs.replace(record, endpoint="chat", service_tier=tier))
    return await w.ledger.admit("req_2", key, quote_of(0, version="v1"))


@pytest.mark.holds("README.md#model-gateway-1", "operations/audit.md#audit-23", "prices.md#prices-that-change-3")
async def test_sound_calls_are_computed_again_and_counted(world):
    async with world() as w:
        await priced(w, tier="flex")
        report = await w.ledger.audit()
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 1, 0)


@pytest.mark.holds("operations/audit.md#audit-15")
@pytest.mark.parametrize(
    "values",
    [
        {"usage": {"in_text": 9, "out_text": 5}},
        {"usage": {"in_text": 10, "out_text": 5, "images": {"count": 1}}, "price": "v2"},
        {"price": "v2"},
        {"service_tier": None},
    ],
)
async def test_changed_usage_price_version_or_tier_is_found(world, values: dict[str, Any]):
    async with world() as w:
        await priced(w, tier="flex")
        await rewrite(w, with_meta(2, **values))
        assert await findings(w.ledger) == [("acme", "cost req_1")]


@pytest.mark.holds("operations/audit.md#audit-23")
@pytest.mark.parametrize("values", [{"usage": None}, {"endpoint": None}, {"clamped": True}])
async def test_line_that_cannot_be_computed_again_is_counted_and_no_finding(world, values: dict[str, Any]):
    async with world() as w:
        await priced(w)
        await rewrite(w, with_meta(2, **values))
        report = await w.ledger.audit()
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 0, 1)


@pytest.mark.holds("operations/audit.md#audit-16")
@pytest.mark.parametrize("table", [None, b"no JSON", b'{"version":"v9"}'], ids=["missing", "unreadable", "of another"])
async def test_price_that_lines_name_and_the_store_lacks_is_one_finding(world, table: bytes | None):
    async with world() as w:
        await priced(w)
        await w.store.client.hdel("prices", "v1")
        if table is not None:
            await w.store.client.hset("prices", "v1", table)
        report = await w.ledger.audit()
        assert [(found.account, found.rule) for found in report.mismatches] == [("acme", "price_table v1")]
        assert report.mismatches[0].found == "none, and 1 lines name it"
        assert (report.recomputed, report.not_recomputed) == (0, 1)


@pytest.mark.holds("operations/audit.md#audit-23")
async def test_calls_of_many_accounts_are_all_computed_again_in_one_audit(world):
    """Accounts are audited at the same time, and share what was read of the prices."""
    async with world() as w:
        await store_prices(w.store, [PRICE])
        accounts = [f"company-{number}" for number in range(40)]
        for account in accounts:
            key = await w.caller(account, balance=10_000)
            hold = await w.ledger.admit(f"req_{account}", key, quote_of(500, version="v1"))
            record = structs.replace(record_of(PRICE.cost(USAGE), usage=USAGE), endpoint="chat")
            await book(w.ledger, hold, record)
        report = await w.ledger.audit()
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], len(accounts), 0)
        changed = accounts[17]
        await rewrite(w, with_meta(2, usage={"in_text": 11, "out_text": 5}), account=changed)
        assert await findings(w.ledger) == [(changed, f"cost req_{changed}")]


@pytest.mark.holds("operations/audit.md#audit-14")
async def test_request_that_was_charged_twice_is_found_though_all_sums_agree(world):
    async with world() as w:
        hold = await priced(w)
        ((_, line),) = await w.store.client.xrevrange(f"{A}:lg", count=1)
        balance = int(line[b"bal"]) + int(line[b"amount"])
        await w.store.client.xadd(f"{A}:lg", {**line, b"n": b"3", b"bal": str(balance).encode()})
        await w.store.client.hset(A, mapping={"bal": balance, "seq": 3})
        await w.store.client.hincrby(f"{A}:k:{hold.key.id}", "spent", -int(line[b"amount"]))
        assert await findings(w.ledger) == [("acme", "twice req_1")]


@pytest.mark.holds("operations/audit.md#audit-15")
async def test_reclaimed_call_is_computed_again_with_its_amendment(world):
    async with world() as w:
        hold = await priced(w)
        hold.used = 7
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        report = await w.ledger.audit()
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 1, 1)
        record = structs.replace(record_of(PRICE.cost(USAGE), usage=USAGE), endpoint="chat")
        await book(w.ledger, hold, record)
        report = await w.ledger.audit()
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 2, 0)
        await rewrite(w, with_meta(4, usage={"in_text": 11, "out_text": 5}))
        assert await findings(w.ledger) == [("acme", "cost req_2")]


@pytest.mark.holds("operations/audit.md#audit-18")
@pytest.mark.parametrize(
    "damage",
    [
        {b"amount": b"much"},
        {b"meta": b"no JSON"},
        {b"meta": b'{"usage": 7}'},
        {b"rid": b"\xff"},
    ],
)
@pytest.mark.parametrize("number", [2, 3])
async def test_unreadable_line_is_one_finding(world, number: int, damage: dict[bytes, bytes]):
    async with world() as w:
        key = await w.caller(balance=10_000)
        for _ in range(2):
            await settle(w.ledger, await w.admit(key, 500), 300)
        await rewrite(w, lambda n, fields: {**fields, **damage} if n == number else fields)
        (found,) = await findings(w.ledger)
        assert found[1].startswith("line ")


# What is listed ------------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/audit.md#audit-25")
async def test_uncollected_sums_and_late_lines_are_listed_and_no_findings(world):
    async with world() as w:
        await priced(w, balance=30, hold=10)  # the call cost 40
        report = await w.ledger.audit()
        assert [(one.account, one.lines, one.amount) for one in report.uncollected] == [("acme", 1, 10)]
        key = await w.caller("late", balance=100)
        hold = await w.admit(key, 50)
        await w.store.client.delete("{a:late}:rv", "{a:late}:rx")
        await w.store.client.hset("{a:late}", "held", 0)
        await settle(w.ledger, hold, 40)
        report = await w.ledger.audit()
        assert [(one.account, one.request_id, one.line, one.amount) for one in report.late] == [
            ("late", hold.request_id, 2, -40)
        ]
        assert (report.mismatches, report.recomputed) == ([], 1)
        assert report.clean


@pytest.mark.holds("operations/audit.md#audit-12", "operations/audit.md#audit-26")
async def test_account_that_lacks_money_for_its_holds_is_found_unless_its_lines_explain_it(world):
    async with world() as w:
        await priced(w, balance=1000)  # it has 960 left
        await w.store.client.hset(A, "floor", 970)
        assert await findings(w.ledger) == [("acme", "free")]
        await rewrite(w, with_meta(2, endpoint=None))  # a line of an older version, whose charges had no bound
        report = await w.ledger.audit()
        assert report.mismatches == []
        assert [(one.account, one.amount) for one in report.overdrawn] == [("acme", 10)]
        await w.store.client.hset(A, "floor", 1001)
        assert await findings(w.ledger) == [("acme", "free")]


@pytest.mark.holds("operations/audit.md#audit-26", "operations/audit.md#late-and-uncollected-5")
async def test_late_line_explains_what_an_account_lacks(world):
    async with world() as w:
        await priced(w, balance=1000)
        await w.store.client.hset(A, "floor", 970)
        await rewrite(w, lambda n, fields: {**fields, b"late": b"1"} if n == 2 else fields)
        report = await w.ledger.audit()
        assert (report.mismatches, [one.amount for one in report.overdrawn]) == ([], [10])


@pytest.mark.holds("operations/audit.md#audit-28")
async def test_account_that_changes_while_its_pages_are_read_is_moving_and_no_finding(
    world, monkeypatch: pytest.MonkeyPatch
):
    async with world() as w:
        key = await w.caller()
        read_pages, reads = reader._read_pages, []

        async def moving(*arguments: Any) -> Any:
            reads.append(await w.admit(key, 5))
            pages = await read_pages(*arguments)
            await settle(w.ledger, reads[-1], 5)
            return pages

        monkeypatch.setattr(reader, "_snapshot", _without_contents(reader._snapshot))
        monkeypatch.setattr(reader, "_read_pages", moving)
        report: AuditReport = await w.ledger.audit()
        assert (report.moving, report.mismatches, report.clean, len(reads)) == (["acme"], [], True, 3)
        await w.store.client.hincrby(A, "bal", 1)
        assert ("acme", "running 5") in await findings(w.ledger)  # its lines are compared all the same
