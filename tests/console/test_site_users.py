"""Operators invite users, give roles, and take access away."""

from __future__ import annotations

import json
import re

import pytest

from gateway.admin.audit_trail import AuditFilter
from gateway.people.sessions import NewSession
from tests.console.client import HOME, PASSWORD, ROOT
from tests.console.history import ago, calls

LINK = re.compile(r'id="link">([^<]+)<')


async def test_invitation_shows_its_link_once_and_the_invited_person_belongs_to_the_account(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", password=PASSWORD)
        form = {"email": "Ann@Example.com", "account": "acme", "account_role": "owner", "role": "none"}
        shown = await operator.post("/site/new-user", 200, **form)
        found = LINK.search(shown.html)
        assert found is not None and 'data-address="' in shown.html
        guest = await c.browser()
        page = found[1].replace("&amp;", "&").partition("/invitation")[2]
        token = page.partition("token=")[2]
        await guest.post(
            "/invitation", page=f"/invitation{page}", token=token, name="Ann", password=PASSWORD, repeated=PASSWORD,
        )  # fmt: skip
        user = await (await c.services.people()).users.find(ROOT, "ann@example.com")
        assert user.accounts == {"acme": "owner"} and user.role == "none"
        assert token not in (await operator.get("/site/users")).html


async def test_role_on_the_site_is_given_only_with_the_password_and_the_last_operator_stays(console) -> None:
    async with console() as c:
        first = await c.user("root@example.com", role="operator", password=PASSWORD)
        operator, ann = await c.signed_in(first), await c.user("ann@example.com")
        page = f"/site/users/{ann.id}"
        refused = await operator.post(
            "/site/new-user", 401, email="b@example.com", role="operator", current_password="x"
        )
        assert "The password is wrong" in refused.text
        assert "Open invitations" not in (await operator.get("/site/users")).text
        await operator.post(f"{page}/role", 401, page=page, role="operator", current_password="wrong")
        assert (await (await c.services.people()).users.show(ROOT, ann.id)).role == "none"
        own, form = f"/site/users/{first.id}", {"role": "none", "current_password": PASSWORD}
        last = await operator.post(f"{own}/role", 409, page=own, **form)
        assert "operator" in last.text
        await operator.post(f"{page}/role", page=page, role="operator", current_password=PASSWORD)
        assert (await (await c.services.people()).users.show(ROOT, ann.id)).role == "operator"


async def test_disabled_user_is_signed_out_and_a_link_lets_them_in_after_they_are_enabled(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", password=PASSWORD)
        ann = await c.user("ann@example.com", acme="member")
        browser, page = await c.signed_in(ann), f"/site/users/{ann.id}"
        await operator.post(f"{page}/disable", 401, current_password="wrong")
        await operator.post(f"{page}/disable", current_password=PASSWORD)
        assert (await browser.ask("GET", "/profile")).location.startswith("/sign-in")
        await operator.post(f"{page}/enable")
        link = LINK.search((await operator.post(f"{page}/link", 200, page=page, current_password=PASSWORD)).html)
        assert link is not None and "/sign-in/link?token=" in link[1]


async def test_memberships_change_and_users_are_found_by_a_part_of_name_or_email(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        ann = await c.user("ann@example.com", acme="member")
        page = f"/site/users/{ann.id}"
        await operator.post(f"{page}/name", page=page, name="Ann <b>50% off</b>", email="ann@example.com")
        await operator.post(f"{page}/memberships", page=page, account="other", account_role="owner")
        await operator.post(f"{page}/memberships/end", account="acme")
        await operator.post(f"{page}/memberships", 404, page=page, account="nobody", account_role="owner")
        shown = await operator.get("/site/users?q=50%25+OFF")
        assert (
            "ann@example.com" in shown.text and "root@example.com</a>" not in shown.html and "<b>50" not in shown.html
        )
        assert "other owner" in shown.text and "acme" not in shown.text
        assert "No user fits" in (await operator.get("/site/users?q=50_")).text


@pytest.mark.holds("console.md#personal-data-1")
async def test_operator_downloads_what_is_stored_about_a_person_and_viewers_do_not(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", password=PASSWORD)
        viewer, ann = await c.as_("viewer", role="viewer"), await c.user("ann@example.com", acme="member")
        key = await c.services.store.keys.create("acme", name="laptop", user=ann.id)
        page = f"/site/users/{ann.id}"
        for wrong in ("", "wrong"):
            refused = await operator.post(f"{page}/export", 401, page=page, current_password=wrong)
            assert "The password is wrong" in refused.text and "Export this person's data" in refused.text
        file = await operator.post(f"{page}/export", 200, page=page, current_password=PASSWORD)
        assert f'attachment; filename="personal-data-{ann.id}.json"' in file.headers["Content-Disposition"]
        document = json.loads(file.html)
        assert document["user"]["email"] == "ann@example.com"
        assert [one["id"] for one in document["keys"]] == [key.id]
        trail = await (await c.services.people()).audit_trail.list(ROOT, AuditFilter(object=f"user:{ann.id}"))
        assert trail[0].action == "users.export" and trail[0].actor_kind == "user"
        assert "Personal data" not in (await viewer.get(page)).text
        await viewer.post(f"{page}/export", 403)
        await operator.post("/site/users/usr_nobody/export", 404, current_password=PASSWORD)


@pytest.mark.holds("console.md#personal-data-1")
async def test_person_is_erased_only_after_their_email_is_typed_and_the_password_given(console) -> None:
    async with console() as c:
        first = await c.user("root@example.com", role="operator", password=PASSWORD)
        operator, ann = await c.signed_in(first), await c.user("ann@example.com", acme="member")
        key = (await c.services.store.keys.create("acme", user=ann.id)).id
        browser, page, people = await c.signed_in(ann), f"/site/users/{ann.id}", await c.services.people()
        await calls(c, ago(hours=1), cost=5, user=ann.id, key=key)
        assert (
            "What stays: ledger lines, statements and reports keep their calls and amounts"
            in (await operator.get(page)).text
        )
        for status, typed, password in (
            (400, "", PASSWORD), (400, "bob@example.com", PASSWORD), (401, ann.email, ""), (401, ann.email, "wrong"),
        ):  # fmt: skip
            refused = await operator.post(f"{page}/erase", status, erase=typed, current_password=password)
            assert "Erase this person" in refused.text
        assert (await people.users.show(ROOT, ann.id)).email == ann.email
        await operator.post(f"{page}/erase", erase="Ann@Example.com", current_password=PASSWORD)
        shown = await operator.get("/site/users")
        assert "The person is erased" in shown.text and "ann@example.com" not in shown.text
        assert (await browser.ask("GET", "/profile")).location.startswith("/sign-in")
        assert (await c.services.store.keys.show(key)).state == "revoked"
        report = (await operator.get("/site/reports?group_by=user")).text
        assert f"{ann.id} (erased) 1" in report and "0.000000005" in report


@pytest.mark.holds("console.md#personal-data-1")
async def test_last_operator_is_not_erased(console) -> None:
    async with console() as c:
        first = await c.user("root@example.com", role="operator", password=PASSWORD)
        operator = await c.signed_in(first)
        page = f"/site/users/{first.id}"
        assert "Erase this person" not in (await operator.get(page)).text
        await operator.post(f"{page}/erase", 403, erase=first.email, current_password=PASSWORD)
        assert (await (await c.services.people()).users.show(ROOT, first.id)).role == "operator"


@pytest.mark.holds("console.md#personal-data-1")
async def test_people_download_their_own_data(console) -> None:
    async with console() as c:
        ann, _ = await c.as_("ann", acme="member"), await c.as_("bob", acme="member")
        assert "Download my data" in (await ann.get("/profile")).text
        file = await ann.post("/profile/data", 200)
        assert 'attachment; filename="personal-data.json"' in file.headers["Content-Disposition"]
        assert json.loads(file.html)["user"]["email"] == "ann@example.com" and "bob@" not in file.html


@pytest.mark.holds("people.md#who-is-who-8")
async def test_page_says_which_admin_tokens_end_with_the_role_and_they_do(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", password=PASSWORD)
        people, rob = await c.services.people(), await c.user("rob@example.com", role="operator")
        for name in ("billing", "deploy"):
            await people.tokens.create(rob.actor(""), name, ["read"])
        await people.tokens.create(ROOT, "of-nobody", ["read"])
        page = f"/site/users/{rob.id}"
        shown = (await operator.get(page)).text
        assert shown.count("These admin tokens end for good, because the user made them: billing") == 3
        assert "deploy" in shown and "of-nobody" not in shown
        await operator.post(f"{page}/role", page=page, role="viewer", current_password=PASSWORD)
        assert "These admin tokens end" not in (await operator.get(page)).text
        states = {token.name: token.state for token in await people.tokens.list(ROOT)}
        assert states == {"billing": "revoked", "deploy": "revoked", "of-nobody": "active"}


@pytest.mark.holds("people.md#proved-addresses-11")
async def test_page_says_before_marking_that_it_ends_nothing_of_the_user_and_offers_a_link(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", password=PASSWORD)
        people, eve = await c.services.people(), await c.user("boss@example.com", is_proved=False, password=PASSWORD)
        browser, page = await c.browser(), f"/site/users/{eve.id}"
        session = await people.sign_in.with_password("boss@example.com", PASSWORD, HOME)
        assert isinstance(session, NewSession)
        browser.use_session(session)
        shown = (await operator.get(page)).text
        before = shown.partition("Mark the address as proved")[2].partition("Mark as proved")[0]
        stays = "the password, sessions, connections with identity providers, second factor, admin tokens and API keys"
        assert stays in before and "of before stay, whoever set them up" in before
        assert "use Make a link to sign in above instead" in before
        await operator.post(f"{page}/prove", page=page, current_password=PASSWORD)
        assert (await browser.ask("GET", "/profile")).status == 200  # as the page says
        assert (await people.users.show(ROOT, eve.id)).has_password
