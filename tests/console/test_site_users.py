"""Operators invite users, give roles, and take access away."""

from __future__ import annotations

import re

from tests.console.client import PASSWORD, ROOT

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
        await operator.post(f"{page}/role", 401, role="operator", current_password="wrong")
        assert (await (await c.services.people()).users.show(ROOT, ann.id)).role == "none"
        last = await operator.post(f"/site/users/{first.id}/role", 409, role="none", current_password=PASSWORD)
        assert "operator" in last.text
        await operator.post(f"{page}/role", role="operator", current_password=PASSWORD)
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
        link = LINK.search((await operator.post(f"{page}/link", 200, current_password=PASSWORD)).html)
        assert link is not None and "/sign-in/link?token=" in link[1]


async def test_memberships_change_and_users_are_found_by_a_part_of_name_or_email(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        ann = await c.user("ann@example.com", acme="member")
        page = f"/site/users/{ann.id}"
        await operator.post(f"{page}/name", name="Ann <b>50% off</b>", email="ann@example.com")
        await operator.post(f"{page}/memberships", account="other", account_role="owner")
        await operator.post(f"{page}/memberships/end", account="acme")
        await operator.post(f"{page}/memberships", 404, account="nobody", account_role="owner")
        shown = await operator.get("/site/users?q=50%25+OFF")
        assert (
            "ann@example.com" in shown.text and "root@example.com</a>" not in shown.html and "<b>50" not in shown.html
        )
        assert "other owner" in shown.text and "acme" not in shown.text
        assert "No user fits" in (await operator.get("/site/users?q=50_")).text
