"""Lines of an account's ledger: what they show to whom."""

from __future__ import annotations

from gateway.admin.actor import Actor, Scope
from gateway.billing.usage import Usage
from tests.admin_api.client import NamedActors
from tests.history.made_lines import Account

READ: frozenset[Scope] = frozenset({"read"})


async def test_cost_of_the_operator_is_shown_to_tokens_of_the_site_only(api) -> None:
    actors = NamedActors(
        site=Actor(kind="token", id="tok_1", scopes=READ),
        acme=Actor(kind="token", id="tok_2", scopes=READ, account="acme"),
        owner=Actor(kind="user", id="usr_1", memberships={"acme": "owner"}),
    )
    async with api(actors) as a:
        account = Account(await a.services.database())
        usage = Usage(in_text=10, out_text=5, provider_cost=300)
        account.call("2026-10-01T10:00", 900, usage=usage, upstream_cost=400, user="usr_1", tags={"team": "search"})
        account.flush()
        await a.services.store.store.client.delete("{a:acme}:lg")  # the line that opened the account
        (line,) = (await a.get("/accounts/acme/lines", token="site"))["data"]
        assert (line["upstream_cost"], line["usage"]["provider_cost"]) == ("0.0000004", "0.0000003")
        assert (line["user"], line["tags"]) == ("usr_1", {"team": "search"})
        for token in ("acme", "owner"):
            (shown,) = (await a.get("/accounts/acme/lines", token=token))["data"]
            assert "upstream_cost" not in shown
            assert shown == {name: value for name, value in line.items() if name != "upstream_cost"} | {
                "usage": {"in_text": 10, "out_text": 5}
            }
