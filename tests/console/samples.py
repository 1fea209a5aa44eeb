"""Objects of the account acme that routes are about: for each route a path that leads to one, and its form."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.admin.user_rows import User
from gateway.billing.usage import Usage
from gateway.console.route import PageRoute
from gateway.people.invitations import PATH as INVITATION
from gateway.people.sign_in_links import PATH as LINK
from gateway.people.sign_ups import PATH as CONFIRM
from gateway.people.sign_ups import insert_sign_up
from tests.batches.made import made_batch, made_file
from tests.console.client import ROOT, Browser, Console
from tests.console.history import ago, calls
from tests.console.sights import PRICE

#: What a form has, where an empty one would find nothing.
FORMS = {
    "/site/users/{user}/memberships/end": {"account": "acme"},
    "/site/models/probe": {"provider": "fake", "credential": "1", "model": "fake-chat"},
}
#: What callers sent is not for those who run the site.
OF_CALLERS = "/accounts/{account}/batches/{batch}/files/{part}"


class Sample(Struct):
    """A request."""

    path: str
    form: dict[str, str]


class Samples:
    """Makes them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._users: dict[str, User] = {}
        self._made = 0

    async def user(self, reader: str, rights: dict[str, Any]) -> User:
        """The user of this name, with these rights."""
        if reader not in self._users:
            self._users[reader] = await self._console.user(f"{reader}@example.com", **rights)
        return self._users[reader]

    async def of(self, route: PageRoute, user: User | None) -> Sample:
        """A request by a user about objects that they may see, as far as they may see the account."""
        path = route.path.format(**{name: await getattr(self, f"_{name}")(user) for name in route.parameters})
        if route.path not in (LINK, INVITATION, CONFIRM):
            return Sample(path, FORMS.get(route.path, {}))
        made = {LINK: self._link, INVITATION: self._invitation, CONFIRM: self._sign_up}[route.path]
        token = await made()
        return Sample(f"{path}?token={token}", {"token": token, "action": "sign_in"})

    async def _account(self, user: User | None) -> str:
        return "acme"

    async def _session(self, user: User | None) -> str:
        people = await self._console.services.people()
        return (await people.sessions.list(ROOT, user.id))[-1].id if user is not None else "ses_none"

    async def _key(self, user: User | None) -> str:
        """A key of the user if they are a member, else of the account."""
        user_id = user.id if user is not None and "acme" in user.accounts else ""
        return (await self._console.services.store.keys.create("acme", name="sample", user=user_id)).id

    async def _request_id(self, user: User | None) -> str:
        usage, user_id = Usage(in_text=12_000, in_cached=300, out_text=500), user.id if user is not None else ""
        meta = {"price": PRICE.version, "price_factor": "1", "hold": 90_000_000, "attempts": 1, "first_token_ms": 180}
        return (await calls(self._console, ago(), cost=PRICE.cost(usage), usage=usage, user=user_id, **meta))[0]

    async def _user(self, user: User | None) -> str:
        """A new member of acme."""
        self._made += 1
        return (await self._console.user(f"new{self._made}@example.com", acme="member")).id

    async def _invitation_id(self, user: User | None) -> str:
        people = await self._console.services.people()
        self._made += 1
        return (await people.invitations.to_site(ROOT, f"new{self._made}@example.com", "none")).invitation.id

    async def _open_invitation(self, user: User | None) -> str:
        people = await self._console.services.people()
        self._made += 1
        made = await people.invitations.to_account(ROOT, f"new{self._made}@example.com", "acme", "member")
        return made.invitation.id

    async def _own_invitation(self, user: User | None) -> str:
        """One that the user may accept."""
        people, email = await self._console.services.people(), user.email if user is not None else "x@example.com"
        account = "other" if user is not None and "acme" in user.accounts else "acme"
        made = await people.invitations.to_account(ROOT, email, account, "owner")
        return made.invitation.id

    async def _running(self, user: User | None) -> str:
        self._made += 1
        return self._console.workers.start(f"req_running{self._made}", "acme")

    async def _batch(self, user: User | None) -> str:
        """A batch of the user if they are a member, else of the account."""
        user_id = user.id if user is not None and "acme" in user.accounts else ""
        services = self._console.services
        file_id = await made_file(services.store.store, services.settings.files_dir, "acme", b"{}\n", user=user_id)
        return (await made_batch(services.store.store, "acme", user=user_id, input_file_id=file_id)).id

    async def _part(self, user: User | None) -> str:
        return "input"

    async def _month(self, user: User | None) -> str:
        return ago()[:7]

    async def _link(self) -> str:
        people = await self._console.services.people()
        user = await self._new_user()
        return (await people.sign_in_links.create(ROOT, user.id)).token

    async def _invitation(self) -> str:
        people = await self._console.services.people()
        user = await self._new_user()
        return (await people.invitations.to_account(ROOT, user.email, "other", "member")).token

    async def _sign_up(self) -> str:
        people = await self._console.services.people()
        self._made += 1
        return await people.transactions.write(insert_sign_up, f"new{self._made}@example.com")

    async def _provider(self, user: User | None) -> str:
        return "fake"

    async def _page(self, user: User | None) -> str:
        return "notifications"

    async def _folder(self, user: User | None) -> str:
        return "operations"

    async def _topic(self, user: User | None) -> str:
        """A page of that folder."""
        return "tls"

    async def _new_user(self) -> User:
        self._made += 1
        return await self._console.user(f"new{self._made}@example.com")


async def browser_of(console: Console, user: User | None) -> Browser:
    """A new browser of the user, or of nobody."""
    return await (console.browser() if user is None else console.signed_in(user))
