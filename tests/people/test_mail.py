"""E-mails go out through a real SMTP server, and a failure is a result."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from gateway.admin.mail import SmtpMail
from gateway.config.loader import parse
from gateway.errors import InvalidLink, InvalidValue, SignInLimited
from gateway.people.sign_in import Client
from tests.admin.services import PASSWORD, ROOT

pytestmark = pytest.mark.slow

Serve = Callable[..., Awaitable[tuple["Inbox", int]]]


class Inbox:
    """What a server has received."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.messages.append(envelope)
        return "250 OK"


def is_known(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    known = isinstance(data, LoginPassword) and (data.login, data.password) == (b"me", b"secret")
    return AuthResult(success=known)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    """Starts a server on a free port, with STARTTLS by a certificate that clients trust."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    servers: list[asyncio.Server] = []

    async def start(*, tls: bool = True, auth: bool = True) -> tuple[Inbox, int]:
        inbox, loop = Inbox(), asyncio.get_running_loop()
        options: dict[str, Any] = {"tls_context": context, "require_starttls": True} if tls else {}
        options |= {"authenticator": is_known, "auth_required": True} if auth else {}
        server = await loop.create_server(lambda: SMTP(inbox, hostname="test", loop=loop, **options), "127.0.0.1", 0)
        servers.append(server)
        return inbox, server.sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()


def mail(port: int, tmp_path: Path, **rest: Any) -> SmtpMail:
    """The mail of a configuration."""
    (tmp_path / "password").write_text("secret\n")
    options = {"host": "127.0.0.1", "port": port, "from": "gw@example.com", "user": "me"}
    return SmtpMail(parse({"mail": options | {"password": f"file:{tmp_path / 'password'}"} | rest}))


async def test_message_is_sent_encrypted_and_signed_in(serve, tmp_path: Path) -> None:
    inbox, port = await serve()
    delivery = await mail(port, tmp_path).send("ann@example.com", "Grüße", "a line with ü\n")
    assert delivery.is_sent, delivery.problem
    [message] = inbox.messages
    assert (message.mail_from, message.rcpt_tos) == ("gw@example.com", ["ann@example.com"])
    assert b"Auto-Submitted: auto-generated" in message.content


async def test_message_is_sent_without_tls_and_user_where_that_is_configured(serve, tmp_path: Path) -> None:
    inbox, port = await serve(tls=False, auth=False)
    delivery = await mail(port, tmp_path, user="", password="", starttls=False).send("ann@example.com", "a", "b\n")
    assert delivery.is_sent, delivery.problem
    assert len(inbox.messages) == 1


async def test_nothing_is_sent_to_a_server_without_starttls(serve, tmp_path: Path) -> None:
    inbox, port = await serve(tls=False, auth=False)
    delivery = await mail(port, tmp_path, user="", password="").send("ann@example.com", "a", "b\n")
    assert not delivery.is_sent and "STARTTLS" in delivery.problem
    assert inbox.messages == []


async def test_failures_are_results_without_the_password(serve, tmp_path: Path) -> None:
    inbox, port = await serve()
    (tmp_path / "wrong").write_text("a wrong secret\n")
    for server in (
        mail(port, tmp_path, password=f"file:{tmp_path / 'wrong'}"),
        mail(1, tmp_path),
        mail(port, tmp_path, password=f"file:{tmp_path / 'none'}"),
        mail(port, tmp_path, host=""),
    ):
        delivery = await server.send("ann@example.com", "a", "b\n")
        assert not delivery.is_sent and delivery.problem
        assert "secret" not in delivery.problem
    assert inbox.messages == []


async def test_invitation_is_sent_to_the_person(services) -> None:
    async with services() as s:
        invited = await s.people.messages.invite_to_account(ROOT, "bob@example.com", "acme", "member")
        assert invited.is_sent
        [(to, subject, text)] = s.mail.sent
        assert (to, subject) == ("bob@example.com", "Invitation to the account acme")
        assert invited.new.url in text


async def test_link_for_a_new_password_is_sent_to_known_users_only(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        for email in ("nobody@example.com", "Ann@example.com"):
            assert await s.people.messages.request_reset(email, Client("192.0.2.1")) is None
        await s.people.messages.finish()
        [(to, _, text)] = s.mail.sent
        assert to == "ann@example.com"
        token = text.partition("token=")[2].split()[0]
        with pytest.raises(InvalidLink):
            await s.people.sign_in.with_link(token, Client())
        await s.people.sign_in.reset_password(token, "another good password", Client())
        await s.signed_in(password="another good password")


async def test_links_for_new_passwords_are_limited(services) -> None:
    async with services() as s:
        for _ in range(10):
            await s.people.messages.request_reset("ann@example.com")
        with pytest.raises(SignInLimited):
            await s.people.messages.request_reset("ann@example.com")
        await s.people.messages.finish()


async def test_new_password_by_email_needs_a_mail_server(services) -> None:
    async with services() as s:
        s.mail.is_set_up = False
        with pytest.raises(InvalidValue):
            await s.people.messages.request_reset("ann@example.com")
