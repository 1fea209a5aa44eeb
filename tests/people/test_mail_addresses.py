"""A message goes to the address that was checked and stored: SMTP envelope and To, at a real server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email import message_from_bytes, policy
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from gateway.admin.granted import Granted
from gateway.admin.mail import SmtpMail
from gateway.admin.values import normal_email
from gateway.config.console_settings import ConsoleSettings
from gateway.config.loader import parse
from gateway.config.oidc_settings import OidcSettings
from gateway.config.toml_reader import SettingsError
from gateway.database.people_tables import invitations, users
from gateway.errors import InvalidValue
from gateway.imports.users import UserImport
from gateway.metrics import Metrics
from gateway.people.oidc.person import person_of
from tests import quick
from tests.admin.services import PASSWORD, ROOT

#: What an attacker tried, and its kind: each names another mailbox to some reader.
STRANGE = [
    "=?utf-8?q?me?=@corp.test",
    "=?utf-8?q?m=65?=@corp.test",
    "=?utf-8?q?evil=40evil.test=2c?=@corp.test",
    "=?utf-8?q?a=0ab?=@corp.test",
    "=?utf-8?b?bWU=?=@corp.test",
    '"me"@corp.test',
    '"a@evil.test"@corp.test',
    "me(comment)@corp.test",
    "me@(comment)corp.test",
    "me%evil.test@corp.test",
    "evil.test!me@corp.test",
    "@evil.test,@b.test:me@corp.test",
    "me@evil.test@corp.test",
    "me,you@corp.test",
    "me;you@corp.test",
    "me@corp.test> SIZE=1",
    "me@corp.test\r\nRCPT TO:<you@evil.test>",
    "me\x00@corp.test",
    "me@corp.test\n",
    "me\t@corp.test",
    "m\u00e9@corp.test",
    "me@c\u00f6rp.test",
    "me\uff20corp.test",
    "me@[192.0.2.1]",
    "me@192.0.2.1",
    ".me@corp.test",
    "m..e@corp.test",
    "me.@corp.test",
    "me\\@corp.test",
    "<me@corp.test>",
    "Me <me@corp.test>",
    "|sh@corp.test",
    "`id`@corp.test",
    "me@corp.test.",
    "m\ud800e@corp.test",
]


class Inbox:
    """The server's side: who got what."""

    def __init__(self) -> None:
        self.received: list[tuple[list[str], bytes]] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.received.append((envelope.rcpt_tos, envelope.content))
        return "250 OK"


OpenInbox = Callable[[], AbstractAsyncContextManager[tuple[Inbox, SmtpMail, Metrics]]]


@pytest.fixture
def inbox() -> OpenInbox:
    """Opens a server without TLS, and the mail that is sent to it."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Inbox, SmtpMail, Metrics]]:
        received, loop, metrics = Inbox(), asyncio.get_running_loop(), Metrics()
        server = await loop.create_server(lambda: SMTP(received, hostname="test", loop=loop), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        options = {"host": "127.0.0.1", "port": port, "from": "gw@example.com", "starttls": False}
        try:
            yield received, SmtpMail(parse({"mail": options}), metrics), metrics
        finally:
            server.close()

    return opened


def sent_and_failed(metrics: Metrics) -> dict[str, float]:
    """What was counted, by result."""
    delta = metrics.drain()
    found = delta.counters if delta is not None else []
    return {labels[0]: value for name, labels, value in found if name == "gateway_emails"}


PIECES = [
    "=?", "?=", "=?utf-8?q?", "=?utf-8?b?", "=40", "=2c", "=0a", "=0d=0a", '"', "'", "(", ")", "(x)", "%", "%40", "%0a",
    "!", "`", "|", "\\", "<", ">", "@", ",", ";", ":", " ", "\t", "\r\n", "\x00", "\x7f", "\x85", "\u00e9", "\u212a",
    "\u200b", "\ufb01", "\uff20", "\ud800", "\U0001f600", "..", "-", "_", "+", "/", "?", "=", "{", "}", "~", "#", "$",
    "&", "*", "^", "A", "xn--", "a" * 64,
]  # fmt: skip
PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def strange_address(chance: random.Random) -> str:
    """A plausible address with up to four pieces that some reader of addresses understands in its own way."""
    text = list("".join(chance.choices(PLAIN, k=chance.randint(1, 20))))
    domain = ".".join("".join(chance.choices(PLAIN, k=chance.randint(1, 20))) for _ in range(chance.randint(1, 9)))
    text += ["@", *domain]
    for _ in range(chance.randint(0, 4)):
        text.insert(chance.randrange(len(text) + 1), chance.choice(PIECES))
    return "".join(text)


async def assert_sent_as_stored(inbox: OpenInbox, count: int, seed: int) -> None:
    """Send to so many addresses: each accepted one has its own message, and nothing else arrives."""
    chance = random.Random(seed)
    async with inbox() as (received, mail, metrics):
        accepted, refused = 0, 0
        for _ in range(count):
            text = strange_address(chance)
            try:
                stored = normal_email(text)
            except InvalidValue:
                refused += 1
                if text != text.strip(" "):
                    continue
                assert not (await mail.send(text, "a", "b\n")).is_sent, ascii(text)
                assert received.received == [], ascii(text)
                continue
            accepted += 1
            assert normal_email(stored) == stored
            delivery = await mail.send(stored, "a", "b\n")
            assert delivery.is_sent, (ascii(text), delivery.problem)
            [(recipients, content)] = received.received
            received.received.clear()
            assert recipients == [stored], ascii(text)
            to = message_from_bytes(content, policy=policy.default)["To"]
            assert [address.addr_spec for address in to.addresses] == [stored], ascii(text)
            unfolded = content.replace(b"\r\n ", b" ")
            assert b"\r\nTo: " + stored.encode() + b"\r\n" in unfolded, ascii(text)
        assert min(accepted, refused) > count / 10
        assert sent_and_failed(metrics)["sent"] == accepted


@pytest.mark.holds("people.md#who-is-who-1", "security.md#e-mail-addresses-and-invitations-5")
async def test_message_goes_to_the_address_that_is_stored(inbox: OpenInbox) -> None:
    await assert_sent_as_stored(inbox, quick.examples(1000), seed=1)


@pytest.mark.parametrize("address", STRANGE)
async def test_message_to_an_address_of_another_form_is_a_failure_that_is_counted(
    inbox: OpenInbox, address: str
) -> None:
    with pytest.raises(InvalidValue):
        normal_email(address)
    async with inbox() as (received, mail, metrics):
        delivery = await mail.send(address, "a", "b\n")
        assert not delivery.is_sent and delivery.is_final
        assert received.received == []
        assert sent_and_failed(metrics) == {"failed": 1.0}


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-5")
@pytest.mark.parametrize(("subject", "text"), [("a\nBcc: you@evil.test", "b\n"), ("\ud800", "b\n"), ("a", "\ud800\n")])
async def test_message_that_cannot_be_made_is_a_failure_that_is_counted(
    inbox: OpenInbox, subject: str, text: str
) -> None:
    async with inbox() as (received, mail, metrics):
        delivery = await mail.send("ann@example.com", subject, text)
        assert not delivery.is_sent and delivery.problem
        assert received.received == []
        assert sent_and_failed(metrics) == {"failed": 1.0}


async def test_problem_of_a_refused_recipient_does_not_have_the_address(inbox: OpenInbox) -> None:
    async with inbox() as (received, mail, _):

        async def refuse(server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
            return "550 no such mailbox"

        received.handle_RCPT = refuse  # type: ignore[attr-defined]
        delivery = await mail.send("ann@example.com", "a", "b\n")
        assert "550" in delivery.problem and "ann@" not in delivery.problem


@pytest.mark.holds("people.md#who-is-who-1", "security.md#e-mail-addresses-and-invitations-5")
@pytest.mark.parametrize(
    "address", ["=?utf-8?q?me?=@corp.test", '"me"@corp.test', "me%x@corp.test", "m\u00e9@corp.test"]
)
async def test_address_of_another_form_is_refused_wherever_people_come_from(services: Any, address: str) -> None:
    async with services() as s:
        ann = await s.user()
        sign_ups = s.people.sign_ups
        sign_ups._console = ConsoleSettings(signup="open")
        turn = asyncio.Lock()
        imports = UserImport(
            s.people.users, s.people.memberships, s.people.directory, budgets=s.people.member_budgets, turn=turn
        )
        for attempt in (
            s.people.users.create(ROOT, address),
            s.people.users.edit(ROOT, ann.id, {"email": address}),
            s.people.invitations.to_account(ROOT, address, "acme", "member"),
            s.people.invitations.to_site(ROOT, address, "viewer"),
            sign_ups.request(address, address="192.0.2.1"),
            imports.run(
                ROOT, "users.csv", f'email\n"{address.replace(chr(34), chr(34) * 2)}"\n'.encode(), dry_run=False
            ),
        ):
            with pytest.raises(InvalidValue):
                await attempt
        assert [user.email for user in await s.people.users.list(ROOT)] == ["ann@example.com"]
        assert s.mail.sent == []
    claims = {"sub": "1", "email": address, "email_verified": True}
    oidc = OidcSettings(issuer="https://login.test", client_id="gw", client_secret="env:S")
    assert person_of("corp", oidc, claims, Granted()).email == ""
    server = {"host": "127.0.0.1", "from": "gw@example.com"}
    for settings in ({"mail": server | {"from": address}}, {"mail": server, "notify": {"mail_to": [address]}}):
        with pytest.raises(SettingsError):
            parse(settings)


async def test_invitation_to_an_address_of_before_makes_no_user(services: Any) -> None:
    async with services() as s:
        new = await s.people.invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        with s.database.writing() as connection:
            connection.execute(invitations.update().values(email="=?utf-8?q?bob?=@example.com"))
        with pytest.raises(InvalidValue):
            await s.people.invitations.accept(new.token, name="Bob", password=PASSWORD)
        assert await s.people.users.list(ROOT) == []


@pytest.mark.holds("people.md#who-is-who-2")
async def test_user_with_an_address_of_before_signs_in_and_gets_no_mail(
    services: Any, inbox: OpenInbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with services() as s, inbox() as (received, mail, metrics):
        user = await s.user(password=PASSWORD)
        for address, typed in (
            ("ren\u00e9@example.com", "RENE\u0301@Example.com"),
            ("me%x@example.com", "Me%x@example.com"),
        ):
            with s.database.writing() as connection:
                connection.execute(users.update().where(users.c.id == user.id).values(email=address))
            await s.signed_in(typed)
            assert (await s.people.users.find(ROOT, typed)).id == user.id
            s.people.messages._mail._mail = mail
            await s.people.messages.request_reset(typed)
            await s.people.messages.finish()
            assert received.received == []
            assert f"user {user.id} got no link for a new password: no e-mail is sent" in caplog.text
            assert "example.com" not in caplog.text
            caplog.clear()
        assert sent_and_failed(metrics) == {"failed": 2.0}
        changed = await s.people.users.edit(ROOT, user.id, {"email": "rene@example.com"})
        assert changed.email == "rene@example.com"
