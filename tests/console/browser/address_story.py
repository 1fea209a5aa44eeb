"""The story of an address that somebody else uses first.

The address is that of the boss, whom an operator invites to a role. Mallory owns a small account, invites the boss
there, and opens that link himself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import aiohttp
from msgspec import Struct, structs

from gateway.config.console_settings import MailSettings
from gateway.config.settings import OidcSettings
from gateway.people.sessions import NewSession
from tests.console.browser.mailbox import Mailbox
from tests.console.client import HOME, PASSWORD, ROOT, Console

OWNER = "mallory@example.com"
OPERATOR = "root@example.com"
NEW = "a password of the boss"
#: A page that needs the role, by the role that the operator gives.
PAGES = {"operator": "/site/users", "owner": "/accounts/acme/members"}
PROOFS = {"mail": "by e-mail", "provider": "by a sign-in service", "operator": "by an operator"}


class Way(Struct, frozen=True):
    """How people get links and sign in, and by what the address of the boss is proved at the end."""

    mail: bool = False
    provider: Literal["", "vouches", "is silent"] = ""
    proved: str = "no"

    def claims(self, n: int) -> dict[str, dict[str, Any]]:
        """What the provider says, by subject: of mallory, too, that the address of the boss is his."""
        email, verified = f"boss{n}@example.com", self.provider == "vouches"
        return {
            f"boss{n}": {"email": email, "email_verified": verified},
            f"mallory{n}": {"email": email, "email_verified": False},
        }


class Stage:
    """The console with a mail server and a provider, and a window for each person."""

    def __init__(self, console: Console, mails: Mailbox, mail: MailSettings, provider: OidcSettings) -> None:
        self.console = console
        self.mails = mails
        self._mail = mail
        self._provider = provider
        self._settings = console.services.settings
        self.operator: Any = None
        self.owner: Any = None
        self.mallory: Any = None  # another window of the owner
        self.boss: Any = None

    async def begin(self, open_window: Callable[[], Awaitable[Any]]) -> None:
        """Open the windows, with sessions of the operator and of the owner."""
        self.operator, self.owner, self.mallory, self.boss = [(await open_window()).page for _ in range(4)]
        await self.console.user(OPERATOR, password=PASSWORD, role="operator")
        await self.console.user(OWNER, password=PASSWORD, other="owner")
        people = await self.console.services.people()
        for page, email in ((self.operator, OPERATOR), (self.owner, OWNER)):
            session = await people.sign_in.with_password(email, PASSWORD, HOME)
            assert isinstance(session, NewSession)
            cookie = {"name": "gateway-session", "value": session.token, "url": self.console.url}
            await page.context.add_cookies([cookie])

    def use(self, way: Way) -> None:
        """Configure the console as the way says."""
        changes: dict[str, Any] = {"console": structs.replace(self._settings.console, public_url=self.console.url)}
        if way.mail:
            changes["mail"] = self._mail
        if way.provider:
            changes["oidc"] = {"corp": self._provider}
        self.console.services.use(structs.replace(self._settings, **changes))


class Story:
    """One boss, one role, one order of events."""

    def __init__(self, stage: Stage, way: Way, n: int, role: str) -> None:
        self.stage = stage
        self.url = stage.console.url
        self.way = way
        self.n = n
        self.email = f"boss{n}@example.com"
        self.role = role

    async def operator_invites(self) -> str:
        """The link of the invitation to the role: from the mailbox of the boss, or handed over."""
        page = self.stage.operator
        await page.goto(f"{self.url}/site/new-user")
        await page.get_by_label("E-mail").fill(self.email)
        if self.role == "operator":
            await page.get_by_text("A role on the site").click()
            await page.locator("select[name=role]").select_option("operator")
            await page.get_by_label("Your password").fill(PASSWORD)
        else:
            await page.get_by_label("Account", exact=True).fill("acme")
            await page.locator("select[name=account_role]").select_option("owner")
        await page.get_by_role("button", name="Invite").click()
        return await self.link_on(page)

    async def owner_invites(self) -> str:
        """The link of the invitation to the small account; one by e-mail arrives at the boss only."""
        page = self.stage.owner
        await page.goto(f"{self.url}/accounts/other/members")
        await page.get_by_label("E-mail").fill(self.email)
        await page.get_by_role("button", name="Invite").click()
        return await self.link_on(page)

    async def link_on(self, page: Any) -> str:
        """The link that the page shows; with mail, the page shows none."""
        if not self.way.mail:
            return str(await page.locator("#link").inner_text())
        await page.get_by_text(f"The invitation is sent to {self.email}.").wait_for()
        assert "token=" not in await page.content()
        return self.stage.mails.link_to(self.email)

    async def link_of_mallory(self) -> str:
        """A link to the small account that mallory sees: where mail is sent, a program of the site asks for one."""
        link = await self.owner_invites()
        if not self.way.mail:
            return link
        people = await self.stage.console.services.people()
        token = await people.tokens.create(ROOT, f"n{self.n}", frozenset({"users", "read", "keys"}))
        body = {"email": self.email, "role": "member", "mail": False}
        headers = {"Authorization": f"Bearer {token.text}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{self.url}/admin/v1/accounts/other/invitations", json=body) as answer,
        ):
            return str((await answer.json())["link"])

    async def mallory_makes_the_user(self) -> None:
        """Mallory opens the link himself, and is signed in as the user of the boss from now on."""
        link, page = await self.link_of_mallory(), self.stage.mallory
        if self.way.provider == "is silent":
            await accept_with_provider(page, link, f"mallory{self.n}")
        else:
            await accept_with_password(page, link, PASSWORD)

    async def boss_accepts(self, link: str) -> None:
        """The boss opens the link of the operator, and signs in with the provider from then on if it vouches."""
        page = self.stage.boss
        await accept_with_password(page, link, NEW)
        assert await self.status(page) == 200
        if not self.way.provider:
            return
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("button", name="Sign in with Corp").click()
        if self.way.provider == "vouches":
            await page.get_by_role("button", name=f"boss{self.n}", exact=True).click()
            await page.get_by_role("heading", name="Your password, once").wait_for()
            await page.get_by_label("Password").fill(NEW)
            await page.get_by_role("button", name="Connect and sign in").click()
        else:
            await refused_by_provider(page, f"boss{self.n}")
            await sign_in(page, self.url, self.email, NEW)
        await page.get_by_role("button", name="Sign out").wait_for()

    async def status(self, page: Any) -> int:
        """The status of the page that needs the role."""
        answer = await page.goto(f"{self.url}{PAGES[self.role]}")
        return int(answer.status)

    async def operator_sees(self, text: str) -> None:
        """What the operator reads about the user: in the list, and on the page of the user."""
        page = self.stage.operator
        await page.goto(f"{self.url}/site/users?q={self.email}")
        link = page.get_by_role("link", name=self.email)
        row = await page.locator("tr", has=link).inner_text()
        assert ("not proved" in row) == (text == "not proved")
        await link.click()
        await page.locator("dd", has_text=text).wait_for()

    async def operator_gives_no_role_by_the_address(self) -> None:
        """On the page of the user."""
        page = self.stage.operator
        await page.get_by_label("Account", exact=True).fill("acme")
        await page.get_by_role("button", name="Add or change").click()
        assert "is not proved" in await page.locator("main").inner_text()

    async def mallory_is_out(self) -> None:
        """Neither the session of before, nor the password, nor the provider leads into the user of the boss."""
        page = self.stage.mallory
        await page.goto(f"{self.url}/profile")
        await page.get_by_role("heading", name="Sign in").wait_for()
        await sign_in(page, self.url, self.email, PASSWORD)
        await page.get_by_text("The e-mail address or the password is wrong").wait_for()
        if self.way.provider:
            await page.get_by_role("button", name="Sign in with Corp").click()
            await refused_by_provider(page, f"mallory{self.n}")

    async def operator_marks_as_proved(self) -> None:
        """By the form on the page of the user; the audit trail says who did it."""
        page = self.stage.operator
        await page.get_by_text("Mark the address as proved", exact=True).click()
        form = page.locator("details", has_text="Mark the address as proved")
        await form.get_by_label("password").fill(PASSWORD)
        await form.get_by_role("button", name="Mark as proved").click()
        await page.get_by_text("The address is marked as proved.").wait_for()
        user = page.url.rpartition("/")[2]
        await page.goto(f"{self.url}/site/audit-trail?object=user:{user}")
        rows = [await row.inner_text() for row in await page.locator("tbody tr").all()]
        assert [OPERATOR in row for row in rows if "users.prove" in row] == [True]
        assert [self.email in row for row in rows if "users.take_over" in row] == [True]  # by the boss

    async def tell(self, *, operator_first: bool) -> None:
        """The whole story; at the end the address is proved."""
        self.stage.use(self.way)
        for page in (self.stage.mallory, self.stage.boss):
            await page.context.clear_cookies()
        link = await self.operator_invites() if operator_first else ""
        await self.mallory_makes_the_user()
        link = link or await self.operator_invites()
        assert await self.status(self.stage.mallory) in (403, 404)
        await self.operator_sees("not proved")
        if self.n == 0:
            await self.operator_gives_no_role_by_the_address()
        await self.boss_accepts(link)
        await self.mallory_is_out()
        await self.operator_sees(PROOFS.get(self.way.proved, "not proved"))
        if self.way.proved == "no":
            await self.operator_marks_as_proved()
        assert await self.status(self.stage.boss) == 200

    async def boss_accepts_another_invitation(self) -> None:
        """After the address is proved: by a button, while signed in; the link alone leads nobody into the user."""
        link, mallory, boss = await self.owner_invites(), self.stage.mallory, self.stage.boss
        await mallory.goto(link)
        await fill_in_password(mallory, PASSWORD)
        await mallory.get_by_text("Sign in as this user").wait_for()
        await boss.goto(link)
        await boss.get_by_role("button", name="Accept", exact=True).click()
        await boss.get_by_text("The invitation is accepted.").wait_for()
        await sign_in(mallory, self.url, self.email, PASSWORD)
        await mallory.get_by_text("The e-mail address or the password is wrong").wait_for()


async def sign_in(page: Any, url: str, email: str, password: str) -> None:
    """Try to sign in by a password."""
    await page.goto(f"{url}/sign-in")
    await page.get_by_label("E-mail").fill(email)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def accept_with_password(page: Any, link: str, password: str) -> None:
    """Accept an invitation as a person who is not signed in."""
    await page.goto(link)
    await fill_in_password(page, password)
    await page.get_by_role("button", name="Sign out").wait_for()


async def fill_in_password(page: Any, password: str) -> None:
    """Send the form of an invitation for people who are not signed in."""
    await page.get_by_label("New password").fill(password)
    await page.get_by_label("The same again").fill(password)
    await page.get_by_role("button", name="Accept and sign in").click()


async def accept_with_provider(page: Any, link: str, subject: str) -> None:
    """Accept an invitation as a person whom the provider knows."""
    await page.goto(link)
    await page.get_by_role("button", name="Accept with Corp").click()
    await page.get_by_role("button", name=subject, exact=True).click()
    await page.get_by_role("button", name="Sign out").wait_for()


async def refused_by_provider(page: Any, subject: str) -> None:
    """Come back from the provider's page as this person, and get no further."""
    async with page.expect_response(lambda answer: "/callback" in answer.url) as answer:
        await page.get_by_role("button", name=subject, exact=True).click()
    assert (await answer.value).status == 403
