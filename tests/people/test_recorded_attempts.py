"""Strangers who ask for new passwords write few events, which stay for good. The messages go out."""

from __future__ import annotations

import pytest

from gateway.people.sign_in import Client
from gateway.people.sign_in_limits import MOST_RECORDED
from tests.admin.services import ROOT, Services


async def ask(s: Services, email: str, address: str) -> None:
    await s.people.messages.request_reset(email, Client(address=address))
    await s.people.messages.finish()


async def links(s: Services) -> list[str]:
    """The ids of the users of the events, oldest first."""
    return [event.actor_id for event in reversed(await s.events(actor="user")) if event.action == "users.link"]


@pytest.mark.holds("people.md#links-and-e-mail-3", "security.md#shares-7")
async def test_network_that_asks_for_new_passwords_of_many_people_writes_few_events(services) -> None:
    async with services() as s:
        emails = [f"u{number}@example.com" for number in range(20)]
        ids = [(await s.user(email)).id for email in emails]
        for number, email in enumerate(emails):
            await ask(s, email, f"2001:db8::{number + 1:x}")
        assert await links(s) == ids[:MOST_RECORDED]
        assert [to for to, *_ in s.mail.sent] == emails
        await ask(s, emails[-1], "192.0.2.9")
        assert await links(s) == [*ids[:MOST_RECORDED], ids[-1]]


@pytest.mark.holds("people.md#links-and-e-mail-3", "security.md#shares-7")
async def test_requests_for_a_new_password_of_one_person_from_many_networks_write_few_events(services) -> None:
    async with services() as s:
        await s.people.users.create(ROOT, "ann@example.com")
        for number in range(9):
            await ask(s, "ann@example.com", f"192.0.2.{number}")
        assert len(s.mail.sent) == 9
        assert len(await links(s)) == MOST_RECORDED
