"""Lines of an account's ledger: what they show to whom."""

from __future__ import annotations

from msgspec import structs

from gateway.admin.actor import Actor, Scope
from gateway.billing.usage import Usage
from gateway.ledger.api_key import ApiKey
from tests.admin_api.client import NamedActors
from tests.admin_api.samples import UNIT
from tests.ledger.records import quote_of, record_of

READ: frozenset[Scope] = frozenset({"read"})


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
