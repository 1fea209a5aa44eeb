"""A browser without a window: cookies, forms with their XSRF tokens, and what a page says."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from html import unescape
from typing import Any

import aiohttp
from yarl import URL

from gateway.admin.actor import Actor, command_line
from gateway.admin.user_rows import User
from gateway.console.site import Site
from gateway.people.proofs import set_proved
from gateway.people.sessions import NewSession
from gateway.people.sign_in import Client
from gateway.services.services import AdminServices
from tests.admin_api.workers import MadeUpWorkers

ROOT = command_line("root")
PASSWORD = "correct horse battery"
HOME = Client("127.0.0.1", "a test")
XSRF = r'name="xsrf" value="([^"]+)"'

STEP = r'name="step" value="([^"]+)"'

SHOWN = r'name="shown_email" value="([^"]+)"'
FORM = re.compile(r'<form [^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)

TAG = re.compile(r"<(script|style|head)\b.*?</\1>|<[^>]*>", re.DOTALL)


#: White space counts in these, and only there.
VERBATIM = re.compile(r"(<(?:pre|textarea|script)\b.*?</(?:pre|textarea|script)>|=\"[^\"]*\")", re.DOTALL)
#: White space before these means nothing.
BLOCK = re.compile(r"(?<=>)\s*\n\s*(?=</?(?:td|th|tr|thead|tbody|table|dt|dd|dl|li|ul|ol|option|select)\b)")


def _joined(html: str) -> str:
    return re.sub(r"\s*\n\s*", " ", BLOCK.sub("", html))


class Shown:
    """An answer."""

    def __init__(self, status: int, headers: Any, body: bytes, url: str) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.url = url

    @property
    def html(self) -> str:
        """The body as text; the lines of a page are joined as a browser does, so tests do not depend on them."""
        text = self.body.decode()
        if not self.headers.get("Content-Type", "").startswith("text/html"):
            return text
        return "".join(part if at % 2 else _joined(part) for at, part in enumerate(VERBATIM.split(text)))

    @property
    def text(self) -> str:
        """What a person reads, with single spaces."""
        return " ".join(unescape(TAG.sub(" ", self.html)).split())

    def found(self, pattern: str) -> str:
        """The first group of a pattern in the HTML, as text."""
        found = re.search(pattern, self.html)
        assert found is not None, pattern
        return unescape(found[1])

    def hidden(self, action: str = "") -> dict[str, str]:
        """The XSRF token of the forms, and the step of a sign-in if one is under way.

        `action`: the path of a form, for the address of the user that it is about.
        """
        step = re.search(STEP, self.html)
        fields = {"xsrf": self.found(XSRF), **({"step": step[1]} if step is not None else {})}
        for path, form in FORM.findall(self.html) if action else ():
            if path.endswith(action) and (shown := re.search(SHOWN, form)) is not None:
                fields["shown_email"] = unescape(shown[1])
        return fields

    @property
    def location(self) -> str:
        """Where a redirect leads to."""
        return str(self.headers.get("Location", ""))


class Browser:
    """One browser with its cookies."""

    def __init__(self, session: aiohttp.ClientSession, url: str, root: str) -> None:
        self.session = session
        self.url = url
        self.root = root  # a path before those of the console

    async def ask(
        self,
        method: str,
        path: str,
        form: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Shown:
        """One request, without following a redirect."""
        pairs = [
            (n, v) for n, values in (form or {}).items() for v in (values if isinstance(values, list) else [values])
        ]
        async with self.session.request(
            method,
            f"{self.url}{self.root}{path}",
            data=raw if raw is not None else aiohttp.FormData(pairs) if form is not None else None,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            return Shown(answer.status, answer.headers, await answer.read(), path)

    async def get(self, path: str, status: int = 200, **rest: Any) -> Shown:
        """A page, after redirects."""
        for _ in range(5):
            shown = await self.ask("GET", path, **rest)
            if shown.status != 303 or status == 303:
                break
            path = shown.location.removeprefix(self.root)
        assert shown.status == status, (shown.status, shown.text)
        return shown

    async def post(self, path: str, status: int = 303, *, page: str = "", **form: Any) -> Shown:
        """Send a form of a page (by default of the first page that has one), with its XSRF token and its step."""
        opened = await self.get(page or "/profile")
        shown = await self.ask("POST", path, {**opened.hidden(path), **form})
        assert shown.status == status, (shown.status, shown.text)
        return shown

    async def token(self, page: str = "") -> str:
        """The XSRF token of the forms."""
        return (await self.get(page or "/profile")).found(XSRF)

    def use_session(self, session: NewSession) -> None:
        """Have the cookie of a session."""
        self.session.cookie_jar.update_cookies({"gateway-session": session.token}, URL(self.url))

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies by name."""
        return {cookie.key: cookie.value for cookie in self.session.cookie_jar}


class Console:
    """The services behind the console, and browsers."""

    def __init__(
        self, services: AdminServices, url: str, site: Site, stack: AsyncExitStack, *, workers: MadeUpWorkers
    ) -> None:
        self.services = services
        self.workers = workers
        self.url = url
        self.site = site
        self._stack = stack

    async def browser(self) -> Browser:
        """A new browser, in which nobody is signed in."""
        jar = aiohttp.CookieJar(unsafe=True)
        session = await self._stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        return Browser(session, self.url, self.site.root_path)

    async def ask_api(
        self, scopes: Collection[str], method: str, path: str, body: Any = None, *, account: str | None = None
    ) -> tuple[int, Any]:
        """The status and document of the admin API for a new token with these scopes."""
        people = await self.services.people()
        token = await people.tokens.create(ROOT, "a program", sorted(scopes), account=account)
        headers = {"Authorization": f"Bearer {token.text}"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.url}/admin/v1{path}", json=body, headers=headers) as answer,
        ):
            return answer.status, await answer.json()

    async def user(
        self, email: str, *, role: Any = "none", password: str = "", is_proved: bool = True, **memberships: Any
    ) -> User:
        """A new user with these roles by account; their address is proved unless the test says otherwise."""
        people = await self.services.people()
        user = await people.users.create(ROOT, email, role=role)
        if is_proved:
            await people.transactions.write(set_proved, user.id, "mail")
        for account, role_there in memberships.items():
            await people.memberships.set(ROOT, user.id, account, role_there)
        if password:
            link = await people.sign_in_links.create(ROOT, user.id)
            await people.sign_in.reset_password(link.token, password, HOME)
        return await people.users.show(ROOT, user.id)

    async def signed_in(self, user: User) -> Browser:
        """A new browser in which the user is signed in."""
        people = await self.services.people()
        link = await people.sign_in_links.create(ROOT, user.id)
        session = await people.sign_in.with_link(link.token, HOME)
        assert isinstance(session, NewSession)
        browser = await self.browser()
        browser.use_session(session)
        return browser

    async def actor_in(self, browser: Browser) -> Actor:
        """Who is signed in there, as one who acts."""
        return (await (await self.services.people()).sessions.authenticate(browser.cookies["gateway-session"])).actor

    async def as_(self, name: str = "ann", **rest: Any) -> Browser:
        """A new browser of a new user."""
        return await self.signed_in(await self.user(f"{name}@example.com", **rest))
