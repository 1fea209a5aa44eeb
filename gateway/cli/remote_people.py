"""What commands about people work with over a server: the services of `PeopleSession` that they use, as requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Any, TypeVar

from gateway.admin.actor import Actor
from gateway.admin.mail import Delivery
from gateway.cli.admin_client import AdminClient
from gateway.cli.remote_session import Document, Documents, RemoteSession, cleared, key_body, run_remote, written
from gateway.cli.server_option import Server

T = TypeVar("T")


class RemotePeopleSession:
    """The services over people."""

    def __init__(self, store: RemoteSession) -> None:
        self.store = store
        self.actor = store.actor
        self.people = RemotePeople(store.client)
        self._client = store.client

    async def create_key(self, email: str, account: str, **options: Any) -> Document:
        """`PeopleSession.create_key`."""
        form = await self._client.post("accounts", account, "members", email, "keys", body=key_body(options))
        return Document(form, text=form["key"])

    async def user_id(self, email: str) -> str:
        """The id of the user with this e-mail."""
        return str((await self._client.get("users", email))["id"])

    async def events(self, *, since: datetime | None, actor: str, object_: str, account: str, limit: int) -> Documents:
        """`PeopleSession.events`."""
        query = {"since": since.isoformat() if since else None, "actor": actor or None, "account": account or None}
        found = await self._client.pages("audit-trail", most=limit, object=object_ or None, **query)
        return [Document(form) for form in found]


class RemotePeople:
    """`People`."""

    def __init__(self, client: AdminClient) -> None:
        self.sign_in_links = RemoteLinks(client)
        self.users = RemoteUsers(client, self.sign_in_links)
        self.personal_data = RemotePersonalData(client)
        self.member_keys = RemoteMemberKeys(client)
        self.member_budgets = RemoteMemberBudgets(client)
        self.sessions = RemoteSessions(client)
        self.identities = RemoteIdentities(client)
        self.memberships = RemoteMemberships(client)
        self.invitations = RemoteInvitations(client)
        self.messages = RemoteMessages(client)
        self.tokens = RemoteTokens(client)


class RemoteUsers:
    """`Users`."""

    def __init__(self, client: AdminClient, links: RemoteLinks) -> None:
        self._client = client
        self._links = links

    async def create(self, actor: Actor, email: str, *, name: str = "", role: str = "none") -> Document:
        form = await self._client.post("users", body={"email": email, "name": name, "role": role})
        return self._links.keep(form).user  # type: ignore[no-any-return]

    async def find(self, actor: Actor, email: str) -> Document:
        return Document(await self._client.get("users", email))

    async def edit(self, actor: Actor, user_id: str, changes: Mapping[str, Any]) -> Document:
        body = dict(changes)
        if "second_factor" in body:
            body["second_factor"] = "removed"
        return Document((await self._client.send("PATCH", "users", user_id, body=body)).document)

    async def disable(self, actor: Actor, user_id: str) -> Document:
        return Document(await self._client.post("users", user_id, "disable"))

    async def enable(self, actor: Actor, user_id: str) -> Document:
        return Document(await self._client.post("users", user_id, "enable"))

    async def list(self, actor: Actor, *, after: str = "") -> Documents:
        if after:
            return []  # the first call returns all
        return [Document(form) for form in await self._client.pages("users")]


class RemoteLinks:
    """`SignInLinks`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._first: dict[str, Document] = {}  # links that came with new users, by id

    def keep(self, form: Mapping[str, Any]) -> Document:
        """The link in the answer to a new user, which the command asks for next."""
        self._first[form["id"]] = new = _link(form)
        return new

    async def create(self, actor: Actor, user_id: str) -> Document:
        if user_id in self._first:
            return self._first.pop(user_id)
        return _link(await self._client.post("users", user_id, "link"))


def _link(form: Mapping[str, Any]) -> Document:
    user = {name: value for name, value in form.items() if name != "link"}
    return Document({}, user=Document(user), url=form["link"])


class RemotePersonalData:
    """`PersonalData`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def erase(self, actor: Actor, user_id: str) -> None:
        await self._client.send("DELETE", "users", user_id)

    async def export(self, actor: Actor, user_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._client.get("users", user_id, "export")
        return found


class RemoteSessions:
    """`Sessions`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def end_all(self, actor: Actor, user_id: str) -> int:
        return int((await self._client.send("DELETE", "users", user_id, "sessions")).document["ended"])

    async def list(self, actor: Actor, user_id: str) -> Documents:
        return [Document(form) for form in (await self._client.get("users", user_id, "sessions"))["data"]]


class RemoteIdentities:
    """`Identities`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def end_all(self, actor: Actor, user_id: str) -> int:
        return int((await self._client.send("DELETE", "users", user_id, "identities")).document["ended"])

    async def list(self, actor: Actor, user_id: str) -> Documents:
        return [Document(form) for form in (await self._client.get("users", user_id, "identities"))["data"]]


class RemoteMemberships:
    """`Memberships`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def set(self, actor: Actor, user_id: str, account: str, role: str) -> Document:
        await self._client.send("PUT", "accounts", account, "members", user_id, body={"role": role})
        return Document(await self._client.get("users", user_id))

    async def remove(self, actor: Actor, user_id: str, account: str) -> Document:
        await self._client.send("DELETE", "accounts", account, "members", user_id)
        return Document(await self._client.get("users", user_id))


class RemoteMemberKeys:
    """`MemberKeys`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def list(self, actor: Actor, user_id: str, account: str = "") -> Documents:
        path = ("accounts", account, "members", user_id, "keys") if account else ("users", user_id, "keys")
        return [Document(form) for form in (await self._client.get(*path))["data"]]


class RemoteMemberBudgets:
    """`MemberBudgets`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def show(self, actor: Actor, user_id: str, account: str) -> Document:
        return Document(await self._client.get("accounts", account, "members", user_id, "budget"))

    async def change(
        self,
        actor: Actor,
        user_id: str,
        account: str,
        *,
        budget: int | None = None,
        every: str | None = None,
        clear: Collection[str] = (),
    ) -> Document:
        body = cleared(clear, {"budget": budget, "every": every})
        path = ("accounts", account, "members", user_id, "budget")
        return Document((await self._client.send("PATCH", *path, body=body)).document)


class NewInvitation:
    """An invitation that `RemoteMessages.invite_by_mail` makes: the server makes and sends it in one step."""

    def __init__(self, path: tuple[str, ...], email: str, role: str) -> None:
        self.path = path
        self.body = {"email": email, "role": role}
        self.invitation = Document({})
        self.url: str | None = None


class RemoteInvitations:
    """`Invitations`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def to_site(self, actor: Actor, email: str, role: str) -> NewInvitation:
        return NewInvitation(("invitations",), email, role)

    async def to_account(self, actor: Actor, email: str, account: str, role: str) -> NewInvitation:
        return NewInvitation(("accounts", account, "invitations"), email, role)

    async def withdraw(self, actor: Actor, invitation_id: str) -> None:
        await self._client.send("DELETE", "invitations", invitation_id)

    async def list(self, actor: Actor, account: str = "") -> Documents:
        path = ("accounts", account, "invitations") if account else ("invitations",)
        return [Document(form) for form in (await self._client.get(*path))["data"]]


class RemoteMessages:
    """`Messages`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def invite_by_mail(self, new: NewInvitation, *, wanted: bool) -> Delivery | None:
        form = dict(await self._client.post(*new.path, body={**new.body, "mail": wanted}))
        is_sent, new.url = form.pop("sent"), form.pop("link")
        new.invitation = Document(form)
        return Delivery(is_sent=True) if is_sent else None


class RemoteTokens:
    """`Tokens`."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def create(
        self,
        actor: Actor,
        name: str,
        scopes: list[str],
        *,
        account: str | None = None,
        expires: datetime | None = None,
    ) -> Document:
        body = written({"name": name, "scopes": scopes, "account": account, "expires": expires})
        form = await self._client.post("tokens", body=body)
        return Document(form, text=form["token"], record=Document(form))

    async def revoke(self, actor: Actor, token_id: str) -> Document:
        return Document(await self._client.post("tokens", token_id, "revoke"))

    async def list(self, actor: Actor) -> Documents:
        return [Document(form) for form in await self._client.pages("tokens")]


def run_remote_people(server: Server, work: Callable[[Any], Awaitable[T]]) -> T:
    """Do `work` with a `RemotePeopleSession`."""
    return run_remote(server, lambda store: work(RemotePeopleSession(store)))
