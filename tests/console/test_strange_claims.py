"""Claims of an identity provider with lone surrogates, NUL and U+FFFF: a person comes in or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.admin_api.both_databases import database_address, database_url
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.strange_texts import LONE, STRANGE

__all__ = ["database_address", "database_url", "oidc_world"]

PIA: dict[str, Any] = {"sub": "pia", "email": "pia@corp.test", "email_verified": True, "name": "Pia"}
TEXTS = {
    name: json.loads(text.decode("utf-8", "surrogatepass"))
    for name, text in STRANGE.items()
    if name != "byte that is no UTF-8"
}


@pytest.mark.parametrize("text", TEXTS)
async def test_person_with_a_strange_text_in_a_claim_comes_in_or_is_refused(oidc_world: OpenWorld, text: str) -> None:
    strange = TEXTS[text]
    claims: list[dict[str, Any]] = [
        {"sub": strange}, {"sub": f"pia{strange}"}, {"email": f"{strange}@corp.test"}, {"email": f"pia@{strange}.test"},
        {"name": strange}, {"preferred_username": strange}, {"groups": [strange, "search"]}, {"groups": strange},
        {"realm_access": {strange: ["admins"]}}, {strange: "x"}, {"azp": strange}, {"nonce": strange}, {"acr": strange},
    ]  # fmt: skip
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        operator = await c.as_("root", role="operator")
        for changed in claims:
            corp.person = {**PIA, **changed}
            shown = await come(await c.browser())
            assert shown.status < 500, (changed, shown.text)
            assert shown.status >= 400 or text not in LONE or not is_name(changed), changed
        for path in ("/site/users", "/site/audit-trail", "/site/users?search=pia"):
            assert (await operator.get(path)).status == 200
        assert (await c.ask_api(["read"], "GET", "/users"))[0] == 200
        corp.person = PIA
        assert (await come(await c.browser())).status < 500


def is_name(claims: dict[str, Any]) -> bool:
    """Whether they say who the person is."""
    return not claims.keys().isdisjoint({"sub", "email"})
