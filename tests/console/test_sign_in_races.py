"""Two machines with one database do the same for one person at the same moment: nobody sees an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from threading import Barrier, BrokenBarrierError
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy.engine import Connection

from gateway.admin.user_rows import User
from gateway.console.cookies import step_of
from gateway.database.people_tables import users
from gateway.errors import AlreadyExists, InvalidLink, SignInToAccept
from gateway.people.oidc.flows import Callback
from gateway.people.oidc.sign_in import Entered, OidcSignIn
from gateway.people.people import People
from gateway.people.sessions import NewSession
from gateway.people.sign_ups import insert_sign_up
from gateway.services.services import AdminServices
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import HOME, PASSWORD, ROOT, Browser, Console
from tests.console.oidc_world import OpenWorld, away, back, oidc_world

__all__ = ["database_address", "database_url", "oidc_world"]

pytestmark = pytest.mark.slow

Meet = Callable[..., None]


@asynccontextmanager
async def two_machines(c: Console) -> AsyncIterator[tuple[People, People]]:
    """The services of the console, and those of another process with the same store and database."""
    other = AdminServices(c.services.settings, c.services.store.store)
    try:
        yield await c.services.people(), await other.people()
    finally:
        await other.close()


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Lets two threads meet where a function of these names returns. A writer of SQLite is alone there, and goes on."""

    def patch(*names: str) -> None:
        barrier = Barrier(2)

        def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
            def met(*args: Any, **kwargs: Any) -> Any:
                found = original(*args, **kwargs)
                with suppress(BrokenBarrierError):
                    barrier.wait(1.0)
                return found

            return met

        for name in names:
            module, _, function = name.rpartition(".")
            monkeypatch.setattr(name, waiting(getattr(import_module(module), function)))

    return patch


async def finished(oidc: OidcSignIn, browser: Browser, path: str) -> Any:
    """What the browser gets that comes back with this path."""
    target = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(target.query).items()}
    came = Callback(query["state"], query["code"])
    flow = await oidc.take_up("corp", came, browser.cookies[f"gateway-oidc-{step_of(came.state)}"])
    return await oidc.finish(flow, came, HOME, signed_in=None)


async def both_come(c: Console, machines: tuple[People, People]) -> None:
    """One person signs in at two machines; both sign-ins begin a session."""
    browsers = [await c.browser() for _ in machines]
    paths = [await back(browser, await away(browser)) for browser in browsers]
    work = [finished(p.oidc, browser, path) for p, browser, path in zip(machines, browsers, paths, strict=True)]
    for reply in await asyncio.gather(*work):
        assert isinstance(reply, Entered) and isinstance(reply.begun, NewSession)


@pytest.mark.parametrize("is_user", [False, True])
async def test_two_first_sign_ins_of_one_person_succeed(oidc_world: OpenWorld, meet: Meet, is_user: bool) -> None:
    async with oidc_world() as (c, corp), two_machines(c) as machines:
        if is_user:
            await c.user("ann@example.com")
        corp.person |= {"groups": ["search"]}
        meet("gateway.people.oidc.sign_in.match")
        await both_come(c, machines)
        [user] = await machines[0].users.list(ROOT)
        assert user.accounts == {"acme": "member"}
        assert len(await machines[0].identities.list(ROOT, user.id)) == 1


async def test_two_sign_ins_with_a_new_grant_succeed(oidc_world: OpenWorld, meet: Meet) -> None:
    async with oidc_world() as (c, corp), two_machines(c) as machines:
        await c.user("ann@example.com")
        await both_come(c, machines)
        corp.person |= {"groups": ["leads"]}
        meet("gateway.people.oidc.entering.user_of_identity")
        await both_come(c, machines)
        [user] = await machines[0].users.list(ROOT)
        assert user.accounts == {"acme": "owner"}


async def test_two_acceptances_of_invitations_give_one_user(console: Any, meet: Meet) -> None:
    async with console() as c, two_machines(c) as machines:
        invitations = machines[0].invitations
        first = await invitations.to_account(ROOT, "ann@example.com", "acme", "member")
        second = await invitations.to_account(ROOT, "ann@example.com", "other", "owner")
        again = await invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        meet("gateway.people.accepting.user_of")
        accepts = [
            p.invitations.accept(t, password=PASSWORD)
            for p, t in zip(machines, (first.token, second.token), strict=True)
        ]
        one, other = await asyncio.gather(*accepts)
        assert one.id == other.id
        assert (await machines[0].users.show(ROOT, one.id)).accounts == {"acme": "member", "other": "owner"}
        accepts = [p.invitations.accept(again.token, password=PASSWORD) for p in machines]
        ended = await asyncio.gather(*accepts, return_exceptions=True)
        assert {type(one) for one in ended} == {User, InvalidLink}


async def test_invitation_and_sign_up_of_one_person_give_one_user(console: Any, meet: Meet) -> None:
    async with console(signup="open") as c, two_machines(c) as (one, other):
        invitation = await one.invitations.to_account(ROOT, "ann@example.com", "acme", "member")
        token = await one.transactions.write(insert_sign_up, "ann@example.com", "net")
        meet("gateway.people.accepting.user_of", "gateway.people.newcomers.insert_user")
        ended = await asyncio.gather(
            one.invitations.accept(invitation.token, password=PASSWORD),
            other.sign_ups.confirm(token, name="Ann", password=PASSWORD, address=HOME.address),
            return_exceptions=True,
        )
        came = [isinstance(reply, User) for reply in ended]
        assert sum(came) == 1, ended
        assert isinstance(ended[came.index(False)], (InvalidLink, AlreadyExists, SignInToAccept)), ended
        [user] = await one.users.list(ROOT)
        assert user.accounts == {"acme": "member"}


async def test_two_requests_to_sign_up_at_once_leave_a_link_each(console: Any, meet: Meet) -> None:
    async with console(signup="open") as c, two_machines(c) as machines:
        meet("gateway.people.sign_ups._make_room")
        inserts = (p.transactions.write(insert_sign_up, "ann@example.com", "net") for p in machines)
        ended = await asyncio.gather(*inserts, return_exceptions=True)
        tokens = [one for one in ended if isinstance(one, str)]
        assert len(tokens) == 2
        found = await asyncio.gather(*map(machines[0].sign_ups.email_of, tokens), return_exceptions=True)
        assert found == ["ann@example.com"] * 2


async def test_transaction_that_the_server_undid_for_another_one_is_done_again(console: Any, database_url: str) -> None:
    async with console() as c, two_machines(c) as machines:
        ids = [(await machines[0].users.create(ROOT, f"{name}@example.com")).id for name in ("ann", "bob")]
        barrier, calls = Barrier(2), list[str]()

        def rename(connection: Connection, first: str, second: str) -> None:
            calls.append(first)
            connection.execute(users.update().where(users.c.id == first).values(name=first))
            if len(calls) <= 2:  # Each has locked one user, and wants the other. A writer of SQLite is alone there.
                with suppress(BrokenBarrierError):
                    barrier.wait(60.0 if database_url else 0.2)
            connection.execute(users.update().where(users.c.id == second).values(name=first))

        await asyncio.gather(
            machines[0].transactions.write(rename, *ids), machines[1].transactions.write(rename, *reversed(ids))
        )
        assert len({user.name for user in await machines[0].users.list(ROOT)}) == 1
        assert len(calls) == (3 if database_url else 2)
