"""The cookies of the console: their names and flags, and those that one answer sets.

Over HTTPS their names begin with `__Host-`, so that no other host, not even a subdomain, can set them. On plain HTTP,
which is for the loopback, browsers accept neither the prefix nor `Secure`.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec import Struct

SESSION = "session"  # the token of the session
VISITOR = "visitor"  # random, for the XSRF tokens before the sign-in
KNOWN_BROWSER = "known-browser"  # signed: somebody has signed in here; see `gateway.people.known_places`
#: Cookies of one sign-in. Two tabs may sign in at the same time, so each sign-in has its own: `of_step`.
SECOND_STEP = "second-step"  # the token for the code after the password
OIDC = "oidc"  # the secret of a sign-in that is under way at an identity provider
OIDC_STEP = "oidc-step"  # its state, while the password is asked for
FLASH = "flash"  # a message for the next page
ACCOUNT = "account"  # the account whose pages were opened last

SESSION_AGE = 30 * 86_400  # seconds; the server ends a session earlier if it is not used
DELETED = -1
LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)
FLASH_SIGNATURE = 16  # bytes
LONGEST_FLASH = 500  # characters


def step_of(secret: str) -> str:
    """A short name for the sign-in that has this token or state; it is no secret, and pages carry it."""
    return sha256(secret.encode()).hexdigest()[:12]


def of_step(name: str, step: str) -> str:
    """The name of a cookie of one sign-in."""
    return f"{name}-{step}"


class NewCookie(Struct, frozen=True):
    """A cookie to set; `max_age` in seconds, None until the browser ends, DELETED to delete it."""

    value: str
    max_age: int | None = None


class Cookies:
    """The cookies of one request and its answer."""

    def __init__(self, read: Callable[[str], str | None], *, secure: bool) -> None:
        self._read = read
        self._secure = secure
        self._changed: dict[str, NewCookie] = {}

    def get(self, name: str) -> str:
        """The value that the browser sent, or that the answer sets; empty without one."""
        if name in self._changed:
            return self._changed[name].value
        return self._read(self._full(name)) or ""

    def set(self, name: str, value: str, *, max_age: int | None = None) -> None:
        """Set a cookie with the answer."""
        self._changed[name] = NewCookie(value, max_age)

    def delete(self, name: str) -> None:
        """Delete a cookie with the answer, if the browser has it."""
        if self.get(name):
            self._changed[name] = NewCookie("", DELETED)

    def write(self, set_cookie: Callable[..., None]) -> None:
        """Call Tornado's `set_cookie` for what is to be set."""
        flags: dict[str, Any] = {"path": "/", "httponly": True, "samesite": "Lax"}
        if self._secure:
            flags["secure"] = True
        for name, cookie in self._changed.items():
            set_cookie(self._full(name), cookie.value, **flags, **_end(cookie))

    def _full(self, name: str) -> str:
        return f"{'__Host-' if self._secure else ''}gateway-{name}"


def _end(cookie: NewCookie) -> dict[str, Any]:
    if cookie.max_age is None:
        return {}
    return {"expires": LONG_AGO} if cookie.max_age == DELETED else {"max_age": cookie.max_age}


def write_flash(anchor: str, text: str) -> str:
    """The value of the cookie with a message for the next page, such as "The key is revoked".

    It is the signed text, which is read once; it is made with the secret of the session `anchor`.
    """
    content = text[:LONGEST_FLASH].encode()
    return urlsafe_b64encode(_signature(anchor, content) + content).decode().rstrip("=")


def read_flash(anchor: str, value: str) -> str:
    """The text; empty for a value that was not made for this session."""
    try:
        content = urlsafe_b64decode(value + "=" * (-len(value) % 4))
        signature, content = content[:FLASH_SIGNATURE], content[FLASH_SIGNATURE:]
        return content.decode() if hmac.compare_digest(signature, _signature(anchor, content)) else ""
    except ValueError:
        return ""


def _signature(anchor: str, content: bytes) -> bytes:
    return hmac.digest(anchor.encode(), b"flash" + content, "sha256")[:FLASH_SIGNATURE]
