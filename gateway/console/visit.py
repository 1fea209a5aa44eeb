"""A visit: one request to a page, with who makes it, what they typed, and what the answer does beside its page."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.store_services import StoreServices
from gateway.admin.user_rows import Roles, User
from gateway.config.settings import Settings
from gateway.console import cookies as names
from gateway.console.cookies import Cookies, read_flash, write_flash
from gateway.console.running_imports import RunningImports
from gateway.console.xsrf import xsrf_token
from gateway.errors import GatewayError, InvalidValue, NotSignedIn, SignInFailed
from gateway.people.known_places import KEPT
from gateway.people.people import People
from gateway.people.sessions import NewSession, UserSession
from gateway.people.sign_in import Client
from gateway.services.services import AdminServices

MAX_FIELD = 20_000  # characters of one field
MOST_IN_MENU = 50  # accounts to switch to; the page of all accounts has the others
RECENT = timedelta(minutes=15)  # since the sign-in of a person without a password


class Asked(Struct, frozen=True):
    """The request, as far as pages look at it. A field of a form may be there several times."""

    method: str
    path: str  # without `root_path`
    host: str  # of the address that the browser asked
    query: Mapping[str, list[str]]
    address: str
    user_agent: str
    is_secure: bool


class Visit:
    """The first argument of each route's function."""

    def __init__(
        self,
        services: AdminServices,
        asked: Asked,
        cookies: Cookies,
        *,
        imports: RunningImports | None = None,
    ) -> None:
        self.services = services
        self.imports = imports or RunningImports()
        self.asked = asked
        self.cookies = cookies
        self.account = ""  # of the path
        self.help = ""  # that of the route
        self.form: Mapping[str, list[str]] = {}  # what a POST has in its body
        self.error: GatewayError | None = None  # why the input was refused; the form is shown again
        self.user: User | None = None  # who is signed in
        self.session: UserSession | None = None
        self._actor: Actor | None = None
        self._named: set[str] = set()  # accounts whose roles are read
        self._notes: list[str] = []

    @property
    def store(self) -> StoreServices:
        """The services over the store."""
        return self.services.store

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self.services.settings

    async def people(self) -> People:
        """The services over people; DatabaseUnavailable, DatabaseRefused."""
        return await self.services.people()

    # Who ------------------------------------------------------------------------------------------------------------

    async def identify(self, account: str = "") -> None:
        """Find out who is signed in now, with their roles in the account of the path and in others for the menu."""
        self._named |= {name for name in (account, self.cookies.get(names.ACCOUNT)) if name}
        self.user, self.session, self._actor = None, None, None
        token = self.cookies.get(names.SESSION)
        if not token:
            return
        try:
            found = await (await self.people()).sessions.authenticate(
                token, address=self.asked.address, roles=Roles(sorted(self._named), first=MOST_IN_MENU + 1)
            )
        except NotSignedIn:
            self.cookies.delete(names.SESSION)
            return
        self.user, self.session, self._actor = found.user, found.session, found.actor

    @property
    def may_read_manual(self) -> bool:
        """Whether the documentation is for the visitor. Without `public_docs` it is for people who are signed in."""
        return self.settings.console.public_docs or self.is_signed_in

    @property
    def is_signed_in(self) -> bool:
        """Whether somebody is signed in."""
        return self._actor is not None

    @property
    def actor(self) -> Actor:
        """Who is signed in; NotSignedIn."""
        if self._actor is None:
            raise NotSignedIn
        return self._actor

    @property
    def person(self) -> User:
        """Who is signed in; NotSignedIn."""
        if self.user is None:
            raise NotSignedIn
        return self.user

    @property
    def client(self) -> Client:
        """Where the person signs in from."""
        return Client(self.asked.address, self.asked.user_agent, self.cookies.get(names.KNOWN_BROWSER))

    async def begin_session(self, new: NewSession) -> None:
        """Sign in with the answer, and make the browser and the address known."""
        await self.make_known(new.user)
        self.cookies.delete(names.VISITOR)
        self.cookies.set(names.SESSION, new.token, max_age=names.SESSION_AGE)
        self.user, self.session = new.user, new.session
        self._actor = new.user.actor(self.asked.address, new.session.id)

    async def make_known(self, user: User) -> None:
        """Make the browser and the address known as those of a user who has signed in or set a new password."""
        known = await (await self.people()).sign_in.remember(user, self.client)
        self.cookies.set(names.KNOWN_BROWSER, known, max_age=KEPT)

    def end_session(self) -> None:
        """Sign out with the answer; the caller ends the session itself."""
        self.cookies.delete(names.SESSION)
        self.cookies.delete(names.ACCOUNT)
        self.user, self.session, self._actor = None, None, None

    @property
    def anchor(self) -> str:
        """The cookie that XSRF tokens and messages belong to; empty for a browser without one."""
        return self.cookies.get(names.SESSION) if self.is_signed_in else self.cookies.get(names.VISITOR)

    def xsrf(self) -> str:
        """The token for the forms of the page."""
        if not self.anchor:
            self.cookies.set(names.VISITOR, secrets.token_urlsafe(32))
        return xsrf_token(self.anchor)

    async def confirm_password(self) -> None:
        """Require the person's password, in the field `current_password`, before a dangerous action.

        SignInFailed; InvalidValue if they have no password. The form includes `_confirm_password.html`.
        """
        if not self.person.has_password:
            raise InvalidValue("This needs your password, and you have none: set one on your profile first")
        sign_in = (await self.people()).sign_in
        try:
            await sign_in.confirm_password(self.actor, self.raw("current_password"))
        except SignInFailed:
            raise SignInFailed("The password is wrong") from None

    async def confirm_person(self) -> None:
        """As `confirm_password`; of a person without a password, who signs in elsewhere, the sign-in must be recent.

        The form includes `_confirm_password.html` for people with a password.
        """
        if self.person.has_password:
            await self.confirm_password()
        elif self.session is None or datetime.now(UTC) - self.session.created > RECENT:
            raise InvalidValue("This needs a sign-in of the last 15 minutes: sign out, sign in again and repeat it")

    # What was typed -------------------------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        """A field of the form, without spaces around it; empty without one. InvalidValue for a very long one."""
        value = self.raw(name).strip()
        if len(value) > MAX_FIELD:
            raise InvalidValue(f"At most {MAX_FIELD} characters are possible", param=name)
        return value

    def raw(self, name: str) -> str:
        """A field of the form as it was typed, for passwords."""
        values = self.form.get(name, [])
        return values[-1] if values else ""

    def texts(self, name: str) -> list[str]:
        """All values of a field that can be there several times."""
        return [value.strip() for value in self.form.get(name, []) if value.strip()]

    def query(self, name: str) -> str:
        """A parameter of the address; empty without one."""
        return self.asked.query.get(name, [""])[-1].strip()

    def carried(self, name: str) -> str:
        """What the address has, or else a hidden field of the form that was opened with it."""
        return self.query(name) or self.text(name)

    def queries(self, name: str) -> list[str]:
        """All values of a parameter that can be there several times."""
        return [value.strip() for value in self.asked.query.get(name, []) if value.strip()]

    # The next page --------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Show a message on this page, or on the next one after a redirect."""
        self._notes.append(text)

    def take_notes(self) -> list[str]:
        """The messages for this page, which are shown once."""
        found = read_flash(self.anchor, self.cookies.get(names.FLASH)) if self.anchor else ""
        self.cookies.delete(names.FLASH)
        notes = [*([found] if found else []), *self._notes]
        self._notes.clear()
        return notes

    def keep_notes(self) -> None:
        """Keep the messages for the next page."""
        if self._notes:
            self.xsrf()  # makes the anchor
            self.cookies.set(names.FLASH, write_flash(self.anchor, " ".join(self._notes)), max_age=60)
