"""Prices of groups and of single accounts: what is held, charged, told and recomputed."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.admin.account_prices import AccountPrices
from gateway.admin.actor import Actor, command_line
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import NANO, format_amount
from gateway.billing.price_terms import OwnPrice
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.ledger.admission import Admission
from gateway.ledger.line_meta import LineMeta
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, record_holds
from tests.inference.test_holds import Payer, greedy, payer
from tests.ledger_lines import last_line

__all__ = ["payer"]

ROOT = command_line("root")
#: Prices of which no cost of a few tokens is a whole number of nano units.
PRICE = {"input": Decimal("0.013"), "output": Decimal("0.0071"), "per_request": Decimal("0.000000003")}
COST = {"input": Decimal("0.003"), "output": Decimal("0.0017")}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    upstream.answer = greedy
    groups = ["default", "half", "dear", "gift"]
    model = {"provider": "up", "price": PRICE, "max_output_tokens": 500, "groups": groups, "default_reserve_output": 20}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"response_headers": ["cost"]},
            "providers": {"up": {"plugin": "openai", "base_url": upstream.base_url}},
            "groups": {
                "default": {},
                "half": {"price_factor": Decimal("0.5")},
                "dear": {"price_factor": Decimal("1.37")},
                "gift": {"price_factor": 0},
            },
            "models": {
                "m1": model,
                "m2": {**model, "cost": COST},
                "clamp": {**model, "hold": "clamp", "price": {"input": 1, "output": 1000}},
                "least": {**model, "price": {**PRICE, "minimum": Decimal("0.000000101")}},
            },
        },
        demo=True,
    )


def exact(factor: str, tokens_in: int, tokens_out: int, price: dict[str, Decimal] = PRICE) -> int:
    """The cost in nano-units by fractions, rounded up once."""
    million = tokens_in * Fraction(price["input"]) + tokens_out * Fraction(price["output"])
    return ceil((million / 1_000_000 + Fraction(price.get("per_request", 0))) * Fraction(factor) * NANO)


class Operator:
    """Sets own prices."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self.store = store
        self.prices = AccountPrices(store, accounts, AuditOutbox(store))

    async def set(self, model: str, *, factor: str = "1", actor: Actor = ROOT, **amounts: str) -> None:
        values = tuple(sorted((name, int(Decimal(text) * NANO)) for name, text in amounts.items()))
        await self.prices.set(actor, "payer", model, OwnPrice(int(Decimal(factor) * NANO), values))

    async def clear(self, model: str) -> None:
        await self.prices.set(ROOT, "payer", model, None)


@pytest.fixture
def operator(store: Store, accounts: Accounts) -> Operator:
    return Operator(store, accounts)


async def charged(ledger: Ledger, response: Any) -> Any:
    """The line of an answered call."""
    await ledger.drain()
    line = await last_line(ledger, "payer", response.headers["x-request-id"])
    assert line is not None
    return line


async def clean(ledger: Ledger, recomputed: int) -> None:
    """The audit computes every line again and finds nothing."""
    report = await ledger.audit()
    assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], recomputed, 0)


@pytest.mark.holds("prices.md#prices-of-accounts-1")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("group", "factor"), [("half", "0.5"), ("dear", "1.37"), ("gift", "0"), ("default", "1")])
async def test_factor_of_the_group_multiplies_a_call_exactly_and_is_rounded_up_once(
    client: Client, payer: Payer, ledger: Ledger, gateway: Gateway, group: str, factor: str, stream: bool
) -> None:
    await payer.open(NANO, group=group)
    holds = record_holds(gateway)
    for tokens in (7, 11):
        response, *_ = await (client.stream if stream else client.chat)(model="m1", max_tokens=tokens)
        line = await charged(ledger, response)
        assert -line.amount == exact(factor, 8, tokens) <= holds[-1].amount
        assert line.meta.get("price_factor", "1") == factor
        assert line.meta["price"] == gateway.catalog.models["m1"].price.version
        if not stream:
            assert response.headers["x-gateway-cost"] == format_amount(-line.amount)
    await clean(ledger, 2)


@pytest.mark.holds("prices.md#prices-of-accounts-1")
@pytest.mark.parametrize(("group", "least"), [("half", 51), ("dear", 139), ("gift", 0), ("default", 101)])
async def test_factor_multiplies_the_minimum_too(
    client: Client, payer: Payer, ledger: Ledger, group: str, least: int
) -> None:
    await payer.open(NANO, group=group)
    response, _ = await client.chat(model="least", max_tokens=1)
    assert -(await charged(ledger, response)).amount == max(
        least, exact({"half": "0.5", "dear": "1.37", "gift": "0"}.get(group, "1"), 8, 1)
    )
    await clean(ledger, 1)


@pytest.mark.holds("prices.md#prices-of-accounts-3")
async def test_balance_that_covers_the_factor_s_price_but_not_the_list_price_is_enough_and_clamps_by_it(
    client: Client, payer: Payer, ledger: Ledger
) -> None:
    await payer.open(40 * NANO // 1000, group="half")  # 40 tokens at the list price, 80 at half of it
    response, _ = await client.chat(model="clamp", max_tokens=100)
    assert response.headers["x-gateway-max-tokens"] == "79"
    line = await charged(ledger, response)
    assert (line.uncollected, -line.amount) == (0, 79 * NANO // 2000 + 4000)
    await clean(ledger, 1)


async def test_stream_extends_its_hold_at_the_own_price(
    client: Client, payer: Payer, ledger: Ledger, gateway: Gateway, operator: Operator
) -> None:
    await payer.open(NANO)
    await operator.set("m1", input="10", output="100")
    holds = record_holds(gateway)
    response, *_ = await client.stream(model="m1")
    line = await charged(ledger, response)
    price = {"input": Decimal(10), "output": Decimal(100), "per_request": PRICE["per_request"]}
    assert -line.amount == exact("1", 8, 2000, price)
    assert holds[0].amount >= -line.amount
    await clean(ledger, 1)


@pytest.mark.holds("prices.md#prices-of-accounts-2")
async def test_other_models_of_an_account_keep_the_group_s_factor(
    client: Client, payer: Payer, ledger: Ledger, operator: Operator
) -> None:
    await payer.open(NANO, group="half")
    await operator.set("m1", factor="2")
    for model, factor in (("m2", "0.5"), ("m1", "2"), ("m2", "0.5")):
        response, _ = await client.chat(model=model, max_tokens=3)
        assert -(await charged(ledger, response)).amount == exact(factor, 8, 3)
    await clean(ledger, 3)


@pytest.mark.holds("prices.md#prices-of-accounts-3")
async def test_line_whose_factor_was_changed_is_found_by_the_audit(
    client: Client, payer: Payer, ledger: Ledger, store: Store
) -> None:
    await payer.open(NANO, group="dear")
    response, _ = await client.chat(model="m1", max_tokens=50)
    line = await charged(ledger, response)
    meta = msgspec.json.decode(line.meta_text, type=LineMeta)
    for changed, rules in (("1.38", [f"cost {line.request_id}"]), ("1,37", ["line"]), ("1.37", [])):
        meta.price_factor = changed
        await rewrite(store, line, msgspec.json.encode(meta))
        found = [mismatch.rule for mismatch in (await ledger.audit()).mismatches]
        assert [rule.split(" ")[0] for rule in found] == [rule.split(" ")[0] for rule in rules]


async def rewrite(store: Store, line: Any, meta: bytes) -> None:
    """Write the last line of the stream again, with another meta."""
    name = "{a:payer}:lg"
    entries: Any = await store.client.xrange(name)
    await store.client.delete(name)
    for id_, fields in entries:
        if id_.decode() == line.id:
            fields[b"meta"] = meta
        await store.client.xadd(name, fields, id=id_)


@pytest.mark.holds("prices.md#cost-prices-1")
async def test_upstream_cost_is_on_the_line_at_the_cost_price_without_factor_and_not_in_the_receipt(
    client: Client, upstream: FakeUpstream, payer: Payer, ledger: Ledger
) -> None:
    await payer.open(NANO, group="half")
    response, _ = await client.chat(model="m2", max_tokens=7)
    line = await charged(ledger, response)
    assert line.meta["upstream_cost"] == exact("1", 8, 7, COST)
    assert line.json_form()["upstream_cost"] == format_amount(exact("1", 8, 7, COST))
    async with client.request("GET", f"/v1/usage/{line.request_id}") as receipt:
        told = await receipt.json()
    assert (told["price_factor"], "upstream_cost" in told) == ("0.5", False)
    upstream.enqueue(Reply.json({"error": {"message": "no"}}, status=400))
    response, _ = await client.chat(model="m2", max_tokens=7)
    line = await charged(ledger, response)
    assert (line.amount, line.meta["upstream_cost"]) == (0, 0)
    response, _ = await client.chat(model="m1", max_tokens=7)
    assert "upstream_cost" not in (await charged(ledger, response)).meta


async def test_account_without_own_prices_needs_one_admission_and_no_further_read(
    client: Client, payer: Payer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await payer.open(NANO, group="half")
    await client.chat(model="m1", max_tokens=5)
    sent: list[Any] = []
    command = Admission._command

    def counted(self: Admission, batch: Any, key: str) -> bytes:
        sent.append(batch)
        return command(self, batch, key)

    monkeypatch.setattr(
        gateway.ledger._admission._batches, "command", lambda *args: counted(gateway.ledger._admission, *args)
    )
    monkeypatch.setattr(gateway.ledger.terms, "read", None)
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert (response.status, len(sent)) == (200, 1)
