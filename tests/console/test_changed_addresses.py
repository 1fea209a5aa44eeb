"""What is given to a user goes to the address by which the user was chosen, and not to one that a program set since."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.actor import SCOPES
from gateway.admin.user_rows import User
from gateway.errors import AddressNotProved
from gateway.people.sign_in_links import PATH as LINK
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Console
from tests.console.test_claims_and_ways_in import EVIL, PIA, resets, sees
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url"]

CONFIRMED = {"current_password": PASSWORD}
FORMS: dict[str, dict[str, str]] = {
    "role": {"role": "operator", **CONFIRMED},
    "memberships": {"account": "acme", "account_role": "owner"},
    "prove": CONFIRMED,
    "link": CONFIRMED,
    "name": {"name": "Pia", "email": PIA, **CONFIRMED},
    "second-factor/off": CONFIRMED,
}
REQUESTS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "role": ("PATCH", "/users/{}", {"role": "viewer"}),
    "membership": ("PUT", "/accounts/acme/members/{}", {"role": "member"}),
    "proof": ("POST", "/users/{}/prove", None),
    "link": ("POST", "/users/{}/link", None),
}


async def moved(c: Console, user: User, email: str = EVIL) -> None:
    """A token with `users` changes the address of a user whom nobody has entered."""
    status, shown = await c.ask_api(("users",), "PATCH", f"/users/{user.id}", {"email": email})
    assert status == 200, shown


@pytest.mark.holds("people.md#proved-addresses-15", "security.md#scopes-of-admin-tokens-11")
@pytest.mark.parametrize("is_proved", [False, True])
@pytest.mark.parametrize("what", list(FORMS))
async def test_form_of_a_user_is_refused_if_the_address_is_not_the_shown_one(
    console: Any, what: str, is_proved: bool
) -> None:
    """The page of a new user is open while a program changes the address; its holder may have proved it at once."""
    async with console() as c:
        people, mail = await c.services.people(), await with_mail(c)
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        user = await people.users.create(ROOT, PIA)
        path = f"/site/users/{user.id}"
        opened, thief = await root.get(path), await c.browser()
        hidden = opened.hidden(f"{path}/{what}") if what != "second-factor/off" else opened.hidden(f"{path}/role")
        assert hidden["shown_email"] == PIA
        await moved(c, user)
        if is_proved:
            await resets(c, mail, thief, EVIL)
        before = await people.users.show(ROOT, user.id)
        shown = await root.ask("POST", f"{path}/{what}", {**hidden, **FORMS[what]})
        assert shown.status == 409 and "was changed meanwhile" in shown.text and EVIL in shown.text
        assert LINK not in shown.html
        assert await people.users.show(ROOT, user.id) == before
        if not is_proved:
            await resets(c, mail, thief, EVIL)
        assert not await sees(thief, "/site/users") and not await sees(thief, "/accounts/acme/members")


async def test_form_that_does_not_say_which_address_was_shown_is_refused(console: Any) -> None:
    async with console() as c:
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        user = await c.user(PIA, acme="member")
        paths = {f"/site/users/{user.id}/{what}": form for what, form in FORMS.items()}
        paths[f"/accounts/acme/members/{user.id}/role"] = {"role": "owner"}
        for path, form in paths.items():
            shown = await root.ask("POST", path, {"xsrf": await root.token(), **form})
            assert shown.status == 400 and "Open the page again" in shown.text, path


@pytest.mark.holds("people.md#proved-addresses-15")
async def test_owner_raises_no_member_whose_address_is_not_the_shown_one(console: Any) -> None:
    async with console() as c:
        people, ann = await c.services.people(), await c.as_("ann", acme="owner")
        user = await c.user(PIA, acme="member")
        members = "/accounts/acme/members"
        path = f"{members}/{user.id}/role"
        hidden = (await ann.get(members)).hidden(path)
        await people.users.edit(ROOT, user.id, {"email": EVIL})
        await people.users.prove(ROOT, user.id)
        shown = await ann.ask("POST", path, {**hidden, "role": "owner"})
        assert shown.status == 409 and "was changed meanwhile" in shown.text
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "member"}
        await ann.post(path, page=members, role="owner")
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "owner"}


@pytest.mark.holds("people.md#proved-addresses-15", "security.md#scopes-of-admin-tokens-11")
@pytest.mark.parametrize("what", list(REQUESTS))
async def test_program_says_for_which_address_a_user_gets_something(console: Any, what: str) -> None:
    async with console() as c:
        people = await c.services.people()
        user = await people.users.create(ROOT, PIA)
        await people.users.edit(ROOT, user.id, {"email": EVIL})
        method, path, body = REQUESTS[what]
        by_id = path.format(user.id)
        if body:  # a proof and a link have none
            status, shown = await c.ask_api(SCOPES, method, by_id, {**body, "expected_email": PIA})
            assert (status, shown["error"]["code"]) == (409, "address_changed")
        status, _ = await c.ask_api(SCOPES, method, path.format(PIA), body)
        assert status == 404
        found = await people.users.show(ROOT, user.id)
        assert (found.role, found.accounts, found.proved) == ("none", {}, "no")
        if body:
            status, shown = await c.ask_api(SCOPES, method, by_id, {**body, "expected_email": EVIL.upper()})
            assert status == 200, shown
        status, shown = await c.ask_api(SCOPES, method, path.format(EVIL), body)
        assert status in (200, 201), shown


@pytest.mark.parametrize("what", list(REQUESTS))
async def test_user_who_is_named_by_an_address_gets_nothing_that_is_for_the_next_one(
    console: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The address is changed after the user was found by it."""
    async with console() as c:
        people = await c.services.people()
        user, find = await people.users.create(ROOT, PIA), people.users.find

        async def changed_meanwhile(*args: Any) -> User:
            found = await find(*args)
            await people.users.edit(ROOT, user.id, {"email": EVIL})
            return found

        monkeypatch.setattr(people.users, "find", changed_meanwhile)
        method, path, body = REQUESTS[what]
        status, shown = await c.ask_api(SCOPES, method, path.format(PIA), body)
        assert (status, shown["error"]["code"]) == (409, "address_changed")


@pytest.mark.holds("people.md#proved-addresses-2", "security.md#scopes-of-admin-tokens-11")
async def test_user_gets_no_role_while_a_program_has_set_the_address(console: Any) -> None:
    """Neither by the id alone, nor with the new address, until an operator says who the user is."""
    async with console() as c:
        people = await c.services.people()
        user = await people.users.create(ROOT, PIA)
        await people.users.edit(ROOT, user.id, {"role": "viewer"})
        await people.users.edit(ROOT, user.id, {"role": "none"})  # nobody has entered: the role may rise
        await moved(c, user)
        for expected in ("", EVIL):
            with pytest.raises(AddressNotProved):
                await people.users.edit(ROOT, user.id, {"role": "viewer"}, expected_email=expected)
            with pytest.raises(AddressNotProved):
                await people.memberships.set(ROOT, user.id, "acme", "owner", expected_email=expected)
        await people.users.edit(ROOT, user.id, {"email": PIA})  # an operator chooses the address
        await people.memberships.set(ROOT, user.id, "acme", "member")
        await people.memberships.remove(ROOT, user.id, "acme")
        other = await people.users.create(ROOT, "other@example.com")
        await moved(c, other, "new@example.com")
        await people.users.prove(ROOT, other.id)
        await people.users.edit(ROOT, other.id, {"role": "viewer"})
