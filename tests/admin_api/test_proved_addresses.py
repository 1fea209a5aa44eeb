"""Programs see who is not proved, add no role to them, and cannot mark them as proved without being operators."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.actor import EVERYTHING
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT

__all__ = ["database_address", "database_url"]

BOSS = "boss@example.com"


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-1")
async def test_user_of_a_link_of_a_program_gets_no_role_by_the_address(api: Any) -> None:
    """A program with the scope `users` makes the user and sees the link; an operator gives the person a role later."""
    async with api() as a:
        users, everything = await a.make_token("users"), await a.make_token(*EVERYTHING)
        made = (await a.ask("POST", "/users", {"email": BOSS}, token=users)).document
        assert made["proved"] == "no" and "token=" in made["link"]
        for path, method, body in (
            (f"/accounts/acme/members/{BOSS}", "PUT", {"role": "owner"}),
            (f"/users/{BOSS}", "PATCH", {"role": "operator"}),
            ("/imports/users", "POST", {"content": f"email,account\n{BOSS},acme\n"}),
        ):
            answer = await a.ask(method, path, body, token=everything)
            assert answer.status in (400, 409) and "is not proved" in answer.error["message"], answer.document
        assert (await a.ask("POST", f"/users/{BOSS}/prove", token=users)).status == 403
        listed = await a.ask("GET", "/users?proved=no", token=users)
        assert [user["email"] for user in listed.document["data"]] == [BOSS]
        proved = await a.ask("POST", f"/users/{BOSS}/prove", token=everything)
        assert (proved.status, proved.document["proved"]) == (200, "operator")
        assert (await a.ask("GET", "/users?proved=no", token=users)).document["data"] == []
        assert (await a.ask("GET", "/users?proved=maybe", token=users)).status == 400
        answer = await a.ask("PUT", f"/accounts/acme/members/{BOSS}", {"role": "owner"}, token=everything)
        assert answer.status == 200


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-1")
async def test_program_that_sees_the_link_of_an_invitation_does_not_get_a_user_who_has_more(api: Any) -> None:
    async with api() as a:
        people = await a.services.people()
        boss = await people.users.create(ROOT, BOSS)
        await people.memberships.set(ROOT, boss.id, "acme", "owner")
        users = await a.make_token("read", "keys", "users")
        new = await a.ask("POST", "/accounts/other/invitations", {"email": BOSS, "mail": False}, token=users)
        token = new.document["link"].partition("token=")[2]
        assert await people.invitations.way_of(token) == "sign_in"
        # The answer is the same for an address of nobody.
        other = await a.ask("POST", "/accounts/other/invitations", {"email": "x@x.com", "mail": False}, token=users)
        assert other.status == new.status and other.document.keys() == new.document.keys()
        bound = await a.make_token("read", "keys", "users", account="other")
        answer = await a.ask("PUT", f"/accounts/other/members/{boss.id}", {"role": "member"}, token=bound)
        unknown = await a.ask("PUT", "/accounts/other/members/usr_none", {"role": "member"}, token=bound)
        assert (answer.status, unknown.status) == (404, 404)
        assert answer.error["message"] == unknown.error["message"]
        for user in (boss.id, "usr_none"):
            answer = await a.ask("DELETE", f"/accounts/other/members/{user}", token=bound)
            assert (answer.status, answer.error["message"]) == (404, unknown.error["message"])
        link = await people.invitations.accept(
            (await people.invitations.to_account(ROOT, BOSS, "acme", "owner")).token, password=PASSWORD
        )
        assert link.id == boss.id
