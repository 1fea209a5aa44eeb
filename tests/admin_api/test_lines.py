"""Lines of an account's ledger: what they show to whom."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.admin.actor import Actor, Scope
from gateway.billing.usage import Usage
from gateway.errors import InvalidValue
from gateway.ledger.api_key import ApiKey
from gateway.ledger.line import read_shown_line
from tests.admin_api.client import NamedActors
from tests.admin_api.samples import UNIT
from tests.ledger.records import quote_of, record_of

READ: frozenset[Scope] = frozenset({"read"})


@pytest.mark.holds("admin-api.md#routes-1")
async def test_cost_of_the_operator_is_shown_to_tokens_of_the_site_only(api) -> None:
    actors = NamedActors(
        site=Actor(kind="token", id="tok_1", scopes=READ),
        acme=Actor(kind="token", id="tok_2", scopes=READ, account="acme"),
        owner=Actor(kind="user", id="usr_1", memberships={"acme": "owner"}),
    )
    async with api(actors) as a:
        store = a.services.store
        await store.accounts.credit("acme", UNIT)
        key = await store.keys.create("acme")
        hold = await store.ledger.admit("req_1", ApiKey("acme", key.id), quote_of())
        usage = Usage(in_text=10, out_text=5, provider_cost=300)
        store.ledger.book(
            hold, structs.replace(record_of(500), usage=usage, upstream_cost=400, tags={"team": "search"})
        )
        await store.ledger.drain()
        line = (await a.get("/accounts/acme/lines", token="site"))["data"][0]
        assert (line["upstream_cost"], line["usage"]["provider_cost"]) == ("0.0000004", "0.0000003")
        assert line["tags"] == {"team": "search"}
        for token in ("acme", "owner"):
            shown = (await a.get("/accounts/acme/lines", token=token))["data"][0]
            assert "upstream_cost" not in shown
            assert shown == {name: value for name, value in line.items() if name != "upstream_cost"} | {
                "usage": {"in_text": 10, "out_text": 5}
            }


async def damage(client: Any, number: int, how: str) -> str:
    """Damage a line of the ledger of acme in the store; its id."""
    entries = await client.xrange("{a:acme}:lg")
    await client.delete("{a:acme}:lg")
    for at, (id_, fields) in enumerate(entries, 1):
        if at == number:
            fields = {
                "number": {**fields, b"amount": b"x"},
                "field": {name: value for name, value in fields.items() if name != b"kind"},
                "bytes": {**fields, b"rid": b"\xff"},
                "json": {**fields, b"meta": b"{"},
                "other JSON": {**fields, b"meta": b"[]"},
                "usage": {**fields, b"meta": b'{"usage": 5, "hold": "x"}'},
            }[how]
        await client.xadd("{a:acme}:lg", fields, id=id_)
    return str(entries[number - 1][0].decode())


@pytest.mark.holds("cli/ledger.md#gateway-usage-list-1")
@pytest.mark.parametrize("how", ["number", "field", "bytes", "json", "other JSON", "usage"])
@pytest.mark.parametrize("number", [1, 3, 5])
async def test_line_that_cannot_be_read_hides_no_other_and_is_named(api, how: str, number: int) -> None:
    """In one page, in pages of two lines, and in what `gateway usage` reads."""
    actors = NamedActors(site=Actor(kind="token", id="tok_1", scopes=READ))
    async with api(actors) as a:
        store = a.services.store
        for _ in range(4):
            await store.accounts.credit("acme", UNIT)
        id_ = await damage(store.store.client, number, how)
        whole = (await a.get("/accounts/acme/lines", token="site"))["data"]
        kinds = ["topup", "topup", "topup", "topup", "open"]
        kinds[5 - number] = "unreadable"
        assert [line["kind"] for line in whole] == kinds
        pages, cursor = list[Any](), ""
        while True:
            shown = await a.get(f"/accounts/acme/lines?limit=2&cursor={cursor}", token="site")
            pages += shown["data"]
            cursor = shown["next_cursor"]
            if cursor is None:
                break
        assert [line["kind"] for line in pages] == kinds
        balances = ["4", "3", "2", "1", "0"]
        expected = [balances[1], *balances[1:]] if number == 5 else balances  # nothing says what the newest one did
        assert [line["balance"] for line in whole] == expected
        lines = [line async for line in store.ledger.lines("acme", read=read_shown_line)]
        assert [line.kind for line in lines] == kinds[::-1]
        assert lines[number - 1].id == id_
        rules = [one.rule for one in (await store.ledger.audit("acme")).mismatches]
        assert f"line {id_}" in rules or how in ("usage", "other JSON")


@pytest.mark.parametrize(("number", "how"), [(1, "number"), (2, "number"), (2, "field"), (2, "bytes")])
async def test_call_is_refunded_beside_a_line_that_cannot_be_read_unless_it_may_be_of_the_call(
    api, number: int, how: str
) -> None:
    async with api() as a:
        store = a.services.store
        await store.accounts.credit("acme", UNIT)
        key = await store.keys.create("acme")
        for name in ("req_0", "req_1"):
            hold = await store.ledger.admit(name, ApiKey("acme", key.id), quote_of())
            store.ledger.book(hold, record_of(500))
            await store.ledger.drain()
        await damage(store.store.client, 2 + number, how)
        await store.store.client.delete("{a:acme}:st:req_1")  # as after a day: it is searched for
        if number == 1 and how == "number":
            assert (await store.ledger.refund("acme", "req_1")).status == "done"
            return
        with pytest.raises(InvalidValue, match=r"ledger line .* cannot be read"):
            await store.ledger.refund("acme", "req_1")


async def test_settlement_is_not_booked_again_past_a_line_that_cannot_be_read(api) -> None:
    async with api() as a:
        await a.services.store.accounts.credit("acme", UNIT)
        await damage(a.services.store.store.client, 2, "number")
        with pytest.raises(ValueError, match="invalid literal"):
            [line async for line in a.services.store.ledger.lines("acme")]
