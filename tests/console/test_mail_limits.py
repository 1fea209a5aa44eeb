"""An address gets a number of messages that others cause, and strangers keep nobody from a link of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from gateway.admin.audit_trail import AuditFilter
from gateway.admin.mail import CROWDED, Delivery
from gateway.errors import InvalidValue, TooManyRequests
from gateway.people.caused_mail import FIRST_ONES, OWN, PER_ACCOUNT, PER_RECIPIENT, PER_SENDER, SHARE
from gateway.people.sign_in_links import MOST_RESETS
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.opening import MODELS
from tests.console.test_sign_in import NEW, Outgoing, with_mail
from tests.console.test_slow_mail import MAIL

__all__ = ["database_address", "database_url"]

ANN, VICTIM = "ann@example.com", "victim@example.com"
PAGE = "/accounts/other/members"


async def forgets(c: Console, browser: Browser, network: str, email: str = ANN) -> int:
    """Ask for a new password."""
    hidden = (await browser.get("/password/forgotten")).hidden()
    headers = {"X-Forwarded-For": network}
    shown = await browser.ask("POST", "/password/forgotten", {**hidden, "email": email}, headers=headers)
    await (await c.services.people()).messages.finish()
    return shown.status


async def events(c: Console, action: str) -> int:
    found = await (await c.services.people()).audit_trail.list(ROOT, AuditFilter(), limit=1000)
    return [event.action for event in found].count(action)


def token_of(mail: Outgoing, number: int = -1) -> str:
    return mail.sent[number][1].partition("token=")[2].split()[0]


@pytest.mark.holds("people.md#links-and-e-mail-2", "security.md#the-console-8")
async def test_owner_sends_few_messages_to_one_address_and_makes_no_further_invitation(console: Any) -> None:
    async with console() as c:
        mail = await with_mail(c)
        mallory = await c.as_("mallory", other="owner")
        xsrf = await mallory.token()
        statuses = [
            (await mallory.ask("POST", PAGE, {"xsrf": xsrf, "email": VICTIM, "role": "member"})).status
            for _ in range(30)
        ]
        assert statuses == [303] * SHARE + [429] * (30 - SHARE)
        assert [to for to, _ in mail.sent] == [VICTIM] * SHARE
        assert await events(c, "invitations.create") == SHARE
        assert (await mallory.post(PAGE, 303, page=PAGE, email="another@example.com", role="member")).status == 303


@pytest.mark.holds("people.md#links-and-e-mail-2")
@pytest.mark.parametrize("sign", ["+", "."])
async def test_addresses_that_differ_behind_a_plus_sign_or_in_dots_are_one_recipient(console: Any, sign: str) -> None:
    async with console() as c:
        mail = await with_mail(c)
        mallory = await c.as_("mallory", other="owner")
        for number in range(SHARE + 1):
            local = f"victim+{number}" if sign == "+" else f"{'mailbox'[: number + 1]}.{'mailbox'[number + 1 :]}"
            email = f"{local}@example.com"
            await mallory.post(PAGE, 303 if number < SHARE else 429, page=PAGE, email=email, role="member")
        assert len(mail.sent) == SHARE


@pytest.mark.holds("security.md#the-console-8")
async def test_invitation_that_is_not_sent_proves_nothing(console: Any) -> None:
    async with console() as c:
        (await with_mail(c)).send = refuse  # type: ignore[method-assign]
        people, mallory = await c.services.people(), await c.as_("mallory", other="owner")
        shown = await mallory.post(PAGE, 200, page=PAGE, email=VICTIM, role="member")
        token = shown.found(r"/invitation\?token=([\w-]+)")
        user = await people.invitations.accept(token, password=PASSWORD)
        assert user.proved == "no"


@pytest.mark.holds("people.md#links-and-e-mail-2", "security.md#the-console-8")
async def test_address_gets_few_messages_of_each_kind_of_all_people_and_programs_together(console: Any) -> None:
    async with console(signup="open") as c:
        mail, people = await with_mail(c), await c.services.people()
        for number in range(5):
            owner = await c.as_(f"owner{number}", other="owner")
            for _ in range(3):
                status = 303 if len(mail.sent) < PER_RECIPIENT else 429
                await owner.post(PAGE, status, page=PAGE, email=VICTIM, role="member")
        for _ in range(3):
            body = {"email": VICTIM, "role": "member"}
            status, _ = await c.ask_api(("read", "keys", "users"), "POST", "/accounts/other/invitations", body)
            assert status == 429
        operator = await c.as_("root", role="operator")
        await operator.post(PAGE, 303, page=PAGE, email=VICTIM, role="member")  # owners keep no operator from it
        assert len(mail.sent) == PER_RECIPIENT + 1
        for number in range(PER_RECIPIENT + FIRST_ONES + 3):
            await people.sign_ups.request(VICTIM, address=f"192.0.2.{number}")
        await people.sign_ups.finish()
        assert len(mail.sent) == PER_RECIPIENT + 1 + PER_RECIPIENT + FIRST_ONES


@pytest.mark.holds("people.md#links-and-e-mail-4", "security.md#the-console-8")
async def test_owners_send_a_number_of_invitations_in_a_day_to_all_addresses_together(console: Any) -> None:
    async with console() as c:
        mail, people = await with_mail(c), await c.services.people()
        owners = [await c.actor_in(await c.as_(f"mallory{number}", other="owner")) for number in range(3)]
        for number, owner in enumerate(owners):
            for guest in range(PER_SENDER):
                if len(mail.sent) == PER_ACCOUNT:
                    break
                invited = await invite(people, owner, f"{number}x{guest}@victim.example")
                await people.invitations.withdraw(owner, invited.new.invitation.id)
        for owner in owners:
            with pytest.raises(TooManyRequests):
                await invite(people, owner, "further@victim.example")
        assert len(mail.sent) == PER_ACCOUNT == 2 * PER_SENDER
        await invite(people, ROOT, "further@victim.example")


async def invite(people: Any, actor: Any, email: str) -> Any:
    return await people.messages.invite_to_account(actor, email, "other", "member")


@pytest.mark.holds("people.md#links-and-e-mail-2", "security.md#e-mail-addresses-and-invitations-8")
@pytest.mark.parametrize(
    ("networks", "before", "by"), [(1, SHARE, "owner"), (1, SHARE, "token"), (2, 0, "owner"), (4, 0, "token")]
)
async def test_messages_of_other_kinds_do_not_tell_who_is_a_user(
    console: Any, networks: int, before: int, by: str
) -> None:
    async with console(signup="open") as c:
        await with_mail(c)
        people = await c.services.people()
        await c.user(ANN, password=PASSWORD)
        first, second = await c.as_("mallory", other="owner"), await c.as_("friend", other="owner")
        token = (await people.tokens.create(ROOT, "t", ["read", "keys", "users"], account="other")).text
        seen = {}
        for email in (ANN, "nobody@example.com"):
            for number in range(networks):
                for _ in range(SHARE):
                    await forgets(c, await c.browser(), f"198.51.100.{number}", email)
                await people.sign_ups.request(email, address=f"192.0.2.{number}")
            await people.sign_ups.finish()
            for _ in range(before):
                await first.post(PAGE, 303, page=PAGE, email=email, role="member")
            if by == "token":
                seen[email] = await by_token(c, token, email)
            else:
                shown = await second.ask("POST", PAGE, {"xsrf": await second.token(), "email": email, "role": "member"})
                seen[email] = (shown.status, "token=" in shown.html)
        assert seen[ANN] == seen["nobody@example.com"]
        assert seen[ANN] in ((303, False), (201, True))


async def by_token(c: Console, token: str, email: str, **body: Any) -> tuple[int, bool]:
    sent = {"email": email, "role": "member", **body}
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
        session.post(f"{c.url}/admin/v1/accounts/other/invitations", json=sent) as answer,
    ):
        return answer.status, bool((await answer.json()).get("sent"))


@pytest.mark.holds("people.md#links-and-e-mail-1", "security.md#e-mail-addresses-and-invitations-8")
async def test_token_of_an_account_gets_no_link_of_an_invitation_while_there_is_a_mail_server(console: Any) -> None:
    async with console() as c:
        mail, people = await with_mail(c), await c.services.people()
        scopes = ["read", "keys", "users"]
        own = (await people.tokens.create(ROOT, "t", scopes, account="other")).text
        assert await by_token(c, own, VICTIM, mail=False) == (403, False)
        of_site = (await people.tokens.create(ROOT, "t", scopes)).text
        assert await by_token(c, of_site, VICTIM, mail=False) == (201, False)
        assert await events(c, "invitations.create") == 1
        mail.is_set_up = False
        assert await by_token(c, own, VICTIM, mail=False) == (201, False)


@pytest.mark.holds("people.md#links-and-e-mail-1", "security.md#e-mail-addresses-and-invitations-8")
async def test_owner_who_sends_more_invitations_at_once_than_can_wait_gets_no_link(console: Any) -> None:
    async with console() as c:
        (await with_mail(c)).send = crowded  # type: ignore[method-assign]
        people, mallory = await c.services.people(), await c.as_("mallory", other="owner")
        shown = await mallory.post(PAGE, 429, page=PAGE, email=VICTIM, role="member")
        assert "token=" not in shown.html
        assert await people.invitations.list(ROOT, "other") == []


@pytest.mark.holds("people.md#links-and-e-mail-1")
@pytest.mark.parametrize("answer", ["sent", "refused", "crowded"])
async def test_invitation_ends_an_earlier_one_only_if_it_is_sent_or_shown(console: Any, answer: str) -> None:
    async with console() as c:
        mail, people = await with_mail(c), await c.services.people()
        earlier = await people.messages.invite_to_account(ROOT, VICTIM, "acme", "owner")
        to_another = await people.messages.invite_to_account(ROOT, VICTIM, "other", "owner")
        if answer != "sent":
            mail.send = crowded if answer == "crowded" else refuse  # type: ignore[method-assign]
        ann = await c.as_("ann", acme="owner")
        page, status = "/accounts/acme/members", {"sent": 303, "refused": 200, "crowded": 429}[answer]
        await ann.post(page, status, page=page, email=VICTIM, role="member")
        [left] = await people.invitations.list(ROOT, "acme")
        assert (left.id == earlier.new.invitation.id, left.role) == (
            (True, "owner") if answer == "crowded" else (False, "member")
        )
        assert left.is_mailed == (answer != "refused")
        assert (await people.invitations.find(to_another.new.token)).account == "other"


async def test_invitation_that_ended_while_it_was_sent_ends_no_earlier_one(console: Any) -> None:
    async with console() as c:
        mail, people = await with_mail(c), await c.services.people()
        earlier = await people.messages.invite_to_account(ROOT, VICTIM, "acme", "owner")
        owner = await c.user(ANN, acme="owner")
        send = mail.send

        async def demotes_the_maker(*args: Any, **rest: Any) -> Any:
            await people.memberships.set(ROOT, owner.id, "acme", "member")
            return await send(*args, **rest)

        mail.send = demotes_the_maker  # type: ignore[method-assign]
        await people.messages.invite_to_account(owner.actor(""), VICTIM, "acme", "member")
        assert [one.id for one in await people.invitations.list(ROOT, "acme")] == [earlier.new.invitation.id]


async def test_person_with_the_most_invitations_invites_one_of_these_people_again(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.people.invitations.MOST_OPEN", 1)
    async with console() as c:
        await with_mail(c)
        invite = (await c.services.people()).messages.invite_to_account
        for role in ("owner", "member"):
            assert (await invite(ROOT, VICTIM, "acme", role)).is_sent
        with pytest.raises(InvalidValue, match="open invitations"):
            await invite(ROOT, ANN, "acme", "member")


async def crowded(*args: Any, **rest: Any) -> Any:
    return Delivery(False, CROWDED)


@pytest.mark.holds("people.md#links-and-e-mail-2")
async def test_message_that_the_server_does_not_take_is_not_counted(console: Any) -> None:
    async with console() as c:
        mail, mallory = await with_mail(c), await c.as_("mallory", other="owner")
        taken, mail.send = mail.send, refuse  # type: ignore[method-assign]
        for _ in range(SHARE + 1):
            await mallory.post(PAGE, 200, page=PAGE, email=VICTIM, role="member")
        mail.send = taken  # type: ignore[method-assign]
        await mallory.post(PAGE, 303, page=PAGE, email=VICTIM, role="member")


async def refuse(*args: Any, **rest: Any) -> Any:
    return Delivery(False, "refused")


@pytest.mark.holds("security.md#the-console-8")
async def test_strangers_keep_nobody_from_asking_for_a_new_password_elsewhere(console: Any) -> None:
    async with console() as c:
        mail = await with_mail(c)
        await c.user(ANN, password=PASSWORD)
        stranger = await c.browser()
        for _ in range(12):
            await forgets(c, stranger, "198.51.100.1")
        assert len(mail.sent) == SHARE and await events(c, "users.link") - 1 == SHARE  # one of an operator
        assert await forgets(c, await c.browser(), "192.0.2.9") == 200
        assert len(mail.sent) == SHARE + 1


@pytest.mark.holds("people.md#links-and-e-mail-2", "security.md#the-console-8")
async def test_known_browser_gets_a_link_after_strangers_of_many_networks_have_asked_for_many(console: Any) -> None:
    async with console() as c:
        mail = await with_mail(c)
        await c.user(ANN, password=PASSWORD)
        ann = await c.browser()
        await ann.post("/sign-in", page="/sign-in", email=ANN, password=PASSWORD)
        await ann.post("/sign-out")
        stranger = await c.browser()
        most = PER_RECIPIENT + FIRST_ONES
        for number in range(most + 2):
            await forgets(c, stranger, f"198.51.100.{number}")
        assert len(mail.sent) == most
        assert await forgets(c, await c.browser(), "203.0.113.7") == 200 and len(mail.sent) == most
        for _ in range(OWN + 3):
            assert await forgets(c, ann, "198.51.100.1") == 200
        assert len(mail.sent) == most + OWN


@pytest.mark.holds("people.md#links-and-e-mail-2", "security.md#the-console-8")
@pytest.mark.parametrize("strangers", ["two networks", "one customer", "an owner"])
async def test_person_gets_a_link_elsewhere_after_strangers_have_asked_for_many(console: Any, strangers: str) -> None:
    async with console() as c:
        mail = await with_mail(c)
        await c.user(ANN, password=PASSWORD)
        mallory = await c.as_("mallory", other="owner")
        for number in range(4):
            for _ in range(SHARE):
                if strangers == "an owner":
                    form = {"xsrf": await mallory.token(), "email": f"ann+{number}@example.com", "role": "member"}
                    await mallory.ask("POST", PAGE, form)
                network = f"2001:db8:{number % 2 if strangers == 'two networks' else 1}:{number}::5"
                await forgets(c, await c.browser(), network)
        before = len(mail.sent)
        assert await forgets(c, await c.browser(), "192.0.2.9") == 200
        assert [to for to, _ in mail.sent[before:]] == [ANN]


@pytest.mark.holds("people.md#links-and-e-mail-2", "security.md#the-console-8")
async def test_share_of_networks_that_ask_for_the_first_time_grows_back_and_is_bounded(console: Any) -> None:
    async with console() as c:
        mail = await with_mail(c)
        await c.user(ANN, password=PASSWORD)
        for number in range(2 * PER_RECIPIENT):
            await forgets(c, await c.browser(), f"198.51.100.{number}")
        assert len(mail.sent) == PER_RECIPIENT + FIRST_ONES
        store = c.services.store.store.client
        names = [name async for name in store.scan_iter("signin:password-first:*")]
        assert [0 < await store.ttl(name) <= 3600 for name in names] == [True]
        await store.delete(*names)  # an hour later
        await forgets(c, await c.browser(), "198.51.100.0")  # it has had one today
        assert len(mail.sent) == PER_RECIPIENT + FIRST_ONES
        await forgets(c, await c.browser(), "192.0.2.9")
        assert len(mail.sent) == PER_RECIPIENT + FIRST_ONES + 1
        left = {key async for key in store.scan_iter("signin:password-share:*")}
        assert len(left) == PER_RECIPIENT + FIRST_ONES + 1  # what was refused left nothing


@pytest.mark.holds("people.md#links-and-e-mail-2", "security.md#the-console-8")
async def test_link_of_a_person_stays_when_strangers_ask_for_further_ones_until_a_password_is_set(console: Any) -> None:
    async with console() as c:
        mail = await with_mail(c)
        await c.user(ANN, password=PASSWORD)
        ann = await c.browser()
        await forgets(c, ann, "192.0.2.1")
        for number in range(12):
            await forgets(c, await c.browser(), f"198.51.100.{number}")
        assert MOST_RESETS >= PER_RECIPIENT + 2 * FIRST_ONES + OWN  # in an hour, so none of them ends another one
        first, last = token_of(mail, 0), token_of(mail)
        form = {"token": first, "action": "password", "password": NEW, "repeated": NEW}
        await ann.post("/sign-in/link", page=f"/sign-in/link?token={first}", **form)
        assert (await ann.ask("GET", f"/sign-in/link?token={last}")).status == 404


@pytest.mark.holds("people.md#links-and-e-mail-1", "security.md#the-console-9")
@pytest.mark.parametrize("reader", ["owner", "operator"])
async def test_only_operators_read_what_the_mail_server_says(console: Any, reader: str) -> None:
    async def serve(incoming: Any, outgoing: Any) -> None:
        outgoing.write(b"220 mx7.internal.corp ESMTP\r\n")
        while line := await incoming.readline():
            word = line[:4].upper()
            if word == b"EHLO":
                outgoing.write(b"250 mx7.internal.corp\r\n")
            elif word == b"RCPT":
                outgoing.write(b"550 5.7.1 relay from 10.20.30.40 (svc-gateway@mx7.internal.corp) denied\r\n")
            elif word == b"QUIT":
                break
            else:
                outgoing.write(b"250 ok\r\n")
        outgoing.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    settings = MODELS + MAIL.format(port=server.sockets[0].getsockname()[1]) + "starttls = false\n"
    async with server, console(models=settings) as c:
        rights: dict[str, Any] = {"other": "owner"} if reader == "owner" else {"role": "operator"}
        browser = await c.as_("mallory", **rights)
        shown = await browser.post(PAGE, 200, page=PAGE, email="x@example.com", role="member")
        assert "invitation?token=" in shown.html and "could not be sent" in shown.text
        assert ("10.20.30.40" in shown.html) == ("svc-gateway" in shown.html) == (reader == "operator")
