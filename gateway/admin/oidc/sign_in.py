"""Signs people in who come from an identity provider, and decides which user they are.

A person is found by issuer and subject. Only a person who is not known that way is found by a verified e-mail address,
and is known by issuer and subject from then on. A user who has a password is asked for it once before that: somebody
else may have made a user of this address. `gateway.admin.newcomers` decides about people who are no users.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor, by_configuration
from gateway.admin.audit_trail import record
from gateway.admin.directory import Directory
from gateway.admin.identities import has_identity, insert_identity, is_connected, note_use, user_of_identity
from gateway.admin.invitations import find_invitation, use_invitation
from gateway.admin.memberships import Memberships
from gateway.admin.newcomers import UNKNOWN, Newcomer, Newcomers
from gateway.admin.oidc.flows import Begun, Callback, Flow, Flows, Purpose
from gateway.admin.oidc.grants import Granted, apply_grants, granted_by
from gateway.admin.oidc.person import Person, person_of
from gateway.admin.oidc.providers import Listed, Providers
from gateway.admin.password_hashes import PasswordHashes
from gateway.admin.random_ids import new_token, token_hash
from gateway.admin.sessions import NewSession
from gateway.admin.sign_in import Client, SecondStep, credentials, session_or_second_step
from gateway.admin.sign_in_limits import SignInLimits
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id, user_of
from gateway.database.people_tables import users
from gateway.errors import GatewayError, NotFound, SignInFailed, SignInRefused
from gateway.log import gateway_log

T = TypeVar("T")
Match = Literal["known", "by_email", "password", "none"]
OLD = "This sign-in is too old, was used already, or was begun in another browser. Begin again on the sign-in page"
OTHER = "Another person of this sign-in service is connected with the user of your e-mail address. Ask your operator"
UNVERIFIED = "The sign-in service does not say that your e-mail address is verified, so no user can be found by it"
ELSEWHERE = (
    "The user of your e-mail address signs in by another service. Sign in there, and connect this one afterwards"
)
EXISTS = "There is a user of this address already. Sign in as always, then open the invitation again"
NOT_YOURS = "You are known here as another user, not as the invited one"


class Away(Struct, frozen=True):
    """The browser goes to `url` with the secret `browser` in a cookie."""

    url: str
    browser: str
    label: str

    def __repr__(self) -> str:
        return "Away(url='***', browser='***')"


class Entered(Struct, frozen=True):
    """The person is in, but for a code; `path` is where they wanted to go."""

    begun: NewSession | SecondStep
    path: str


class Connected(Struct, frozen=True):
    """A user who was signed in is connected with the provider."""

    label: str


class PasswordNeeded(Struct, frozen=True):
    """The user has a password, which is asked for once; the browser gets a new cookie."""

    state: str
    browser: str

    def __repr__(self) -> str:
        return "PasswordNeeded(state='***', browser='***')"


class OidcSignIn:
    """Sign-ins by the providers of the configuration."""

    def __init__(
        self,
        providers: Providers,
        flows: Flows,
        transactions: Transactions,
        *,
        newcomers: Newcomers,
        memberships: Memberships,
        directory: Directory,
        hashes: PasswordHashes,
        limits: SignInLimits,
    ) -> None:
        self._providers = providers
        self._flows = flows
        self._transactions = transactions
        self._newcomers = newcomers
        self._memberships = memberships
        self._directory = directory
        self._hashes = hashes
        self._limits = limits

    @property
    def providers(self) -> list[Listed]:
        """Those of the configuration."""
        return self._providers.listed

    async def begin(self, name: str, address: str, *, path: str, invitation: str = "", connects: str = "") -> Away:
        """Send a browser to a provider. NotFound, IdentityProviderUnavailable, SignInLimited.

        `invitation`: the token of one that is accepted with the sign-in. `connects`: the id of the user who is signed
        in and is to be connected.
        """
        provider = self._providers.get(name)
        await self._limits.attempt("", address)
        purpose: Purpose = "invitation" if invitation else "connect" if connects else "sign_in"
        nonce, verifier = new_token(), new_token()
        hashed = token_hash(invitation).hex() if invitation else ""
        flow = Flow(
            provider=name,
            purpose=purpose,
            path=path,
            nonce=nonce,
            verifier=verifier,
            invitation=hashed,
            user_id=connects,
        )
        begun = await self._flows.begin(flow)
        url = await provider.authorization_url(state=begun.state, nonce=nonce, verifier=verifier)
        return Away(url, begun.browser, provider.settings.label or name)

    async def finish(
        self, name: str, callback: Callback, browser: str, client: Client, *, signed_in: str
    ) -> Entered | Connected | PasswordNeeded:
        """Take up a browser that comes back; `signed_in` is the id of its user, or "".

        SignInRefused, with an event in the audit trail; IdentityProviderUnavailable, NotFound, InvalidLink.
        """
        provider = self._providers.get(name)
        flow = await self._flows.take(callback.state, browser)
        if flow is None or flow.provider != name or flow.purpose == "password":
            raise SignInRefused(OLD, detail="state")
        claims = await self._watched(name, client, provider.claims(callback, nonce=flow.nonce, verifier=flow.verifier))
        person = person_of(name, provider.settings, claims, await self._granted(provider.settings.grants, claims))
        reply = await self._watched(name, client, self._let_in(flow, person, client, signed_in))
        await self._limits.succeeded("", client.address)
        return reply

    async def email_to_confirm(self, state: str, browser: str) -> str:
        """Whose password is asked for; SignInRefused."""
        flow = await self._confirming(state, browser)
        return (await self._transactions.read(user_by_id, flow.user_id)).email

    async def with_password(self, state: str, browser: str, password: str, client: Client) -> Entered:
        """Connect the user whose password this is, and sign in. SignInFailed for a wrong password, SignInRefused."""
        flow = await self._confirming(state, browser)
        user = await self._transactions.read(user_by_id, flow.user_id)
        await self._limits.attempt(f"email {user.email}", client.address)
        row = await self._transactions.read(credentials, users.c.id == flow.user_id)
        stored = row.password_hash if row is not None and row.disabled_at is None else None
        if not (await self._hashes.verify(stored, password)).is_right:
            raise SignInFailed
        await self._limits.succeeded(f"email {user.email}", client.address)
        if await self._flows.take(state, browser) is None:
            raise SignInRefused(OLD, detail="state")
        issuer = self._providers.get(flow.provider).issuer
        person = Person(flow.provider, issuer, flow.subject, email="", name="", granted=flow.granted)
        await self._watched(
            flow.provider, client, self._transactions.write(_connect, flow.user_id, person, client.address)
        )
        return Entered(await self._enter(person, client), flow.path)

    async def _confirming(self, state: str, browser: str) -> Flow:
        flow = await self._flows.look(state, browser)
        if flow is None or flow.purpose != "password":
            raise SignInRefused(OLD, detail="state")
        return flow

    async def _let_in(
        self, flow: Flow, person: Person, client: Client, signed_in: str
    ) -> Entered | Connected | PasswordNeeded:
        if flow.purpose == "connect":
            if flow.user_id != signed_in:
                raise SignInRefused(OLD, detail="session")
            await self._transactions.write(_connect, flow.user_id, person, client.address)
            return Connected(next(one.label for one in self.providers if one.name == person.provider))
        if flow.purpose == "invitation":
            hashed = bytes.fromhex(flow.invitation)
            await self._transactions.write(_accept_invitation, hashed, person, client.address)
        else:
            match, user_id = await self._transactions.read(_match, person)
            if match == "password":
                begun = await self._ask_password(flow, person, user_id)
                return PasswordNeeded(begun.state, begun.browser)
            if match == "by_email":
                await self._transactions.write(_connect_by_email, person, client.address)
            elif match == "none":
                await self._newcomers.create(_newcomer(person, client.address))
        return Entered(await self._enter(person, client), flow.path)

    async def _ask_password(self, flow: Flow, person: Person, user_id: str) -> Begun:
        wanted = Flow(
            provider=flow.provider,
            purpose="password",
            path=flow.path,
            user_id=user_id,
            subject=person.subject,
            granted=person.granted,
        )
        return await self._flows.begin(wanted)

    async def _enter(self, person: Person, client: Client) -> NewSession | SecondStep:
        begun, user_id, left = await self._transactions.write(_enter, person, client)
        actor = by_configuration(f"oidc.{person.provider}", client.address)
        for account in left:
            with suppress(NotFound):  # they have left it meanwhile
                await self._memberships.remove(actor, user_id, account)
        return begun

    async def _granted(self, grants: Any, claims: Mapping[str, Any]) -> Granted:
        """What the claims give, without accounts that are not there."""
        given, accounts = granted_by(claims, grants), dict[str, str]()
        for account, role in given.accounts.items():
            try:
                await self._directory.require(account)
            except NotFound:
                gateway_log.warning("a grant of [oidc] names the account %r, which does not exist", account)
            else:
                accounts[account] = role
        return Granted(accounts, given.site_role)

    async def _watched(self, name: str, client: Client, step: Awaitable[T]) -> T:
        """Do a step; a refusal is recorded."""
        try:
            return await step
        except GatewayError as error:
            if isinstance(error, SignInRefused):
                await self._transactions.write(_record_refusal, name, client.address, error.detail or "")
            gateway_log.warning("a sign-in by oidc.%s was refused: %s %s", name, error.code, error.log_text())
            raise


def _match(connection: Connection, person: Person) -> tuple[Match, str]:
    """How a person is found, and the id of their user; SignInRefused."""
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is not None:
        _require_active(known[0])
        return "known", known[0].id
    if not person.email:
        raise SignInRefused(UNVERIFIED, detail="email")
    user = user_of(connection, users.c.email == person.email)
    if user is None:
        return "none", ""
    _require_active(user)
    if has_identity(connection, user.id, person.issuer):
        raise SignInRefused(OTHER, detail="other_identity")
    if user.has_password:
        return "password", user.id
    if is_connected(connection, user.id):
        # Somebody else may have accepted the invitation of this address, and would share the user.
        raise SignInRefused(ELSEWHERE, detail="other_identity")
    return "by_email", user.id


def _require_active(user: User) -> None:
    if user.disabled is not None:
        raise SignInRefused(UNKNOWN, detail="disabled")


def _connect_by_email(connection: Connection, person: Person, address: str) -> None:
    match, user_id = _match(connection, person)  # again: the user may have changed meanwhile
    if match != "by_email":
        raise SignInRefused(detail="changed")
    _connect(connection, user_id, person, address)


def _connect(connection: Connection, user_id: str, person: Person, address: str) -> None:
    user = user_by_id(connection, user_id)
    _require_active(user)
    if has_identity(connection, user_id, person.issuer):
        raise SignInRefused("You are connected with this sign-in service already", detail="other_identity")
    insert_identity(connection, user.actor(address), user_id, person.issuer, person.subject)


def _accept_invitation(connection: Connection, hashed: bytes, person: Person, address: str) -> None:
    """Accept as the invited person, who becomes a user; or as a user who is connected already.

    An invitation never leads into an existing user: the person who invites may have its link.
    """
    email = find_invitation(connection, hashed).email
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is not None and known[0].email != email:
        raise SignInRefused(NOT_YOURS, detail="other_user")
    if known is None and user_of(connection, users.c.email == email) is not None:
        raise SignInRefused(EXISTS, detail="user_exists")
    user = use_invitation(connection, hashed, person.name, None, address)
    if known is None:
        insert_identity(connection, user.actor(address), user.id, person.issuer, person.subject)


def _enter(connection: Connection, person: Person, client: Client) -> tuple[NewSession | SecondStep, str, list[str]]:
    """Apply what the claims give and begin; also the user's id and the accounts that they have to leave."""
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is None:
        raise SignInRefused(UNKNOWN, detail="unknown")
    user, before = known
    _require_active(user)
    actor = by_configuration(f"oidc.{person.provider}", client.address)
    applied = apply_grants(connection, actor, user, before, person.granted)
    note_use(connection, person.issuer, person.subject, applied.remembered)
    user = user_by_id(connection, user.id)
    return session_or_second_step(connection, user, client, by=f"oidc.{person.provider}"), user.id, applied.left


def _newcomer(person: Person, address: str) -> Newcomer:
    return Newcomer(
        email=person.email,
        name=person.name,
        rule=f"oidc.{person.provider}",
        address=address,
        issuer=person.issuer,
        subject=person.subject,
        is_expected=person.granted.is_something,
    )


def _record_refusal(connection: Connection, name: str, address: str, reason: str) -> None:
    actor: Actor = by_configuration(f"oidc.{name}", address)
    record(connection, actor, "sessions.refuse", f"oidc:{name}", after={"reason": reason})
