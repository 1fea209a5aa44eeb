"""Sign-ins that are under way at a provider: in the store for ten minutes, bound to one browser, used once."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct, structs

from gateway.admin.granted import Granted
from gateway.people.random_ids import new_token
from gateway.store.links import Links

LIFETIME = 600  # seconds

#: `invitation`: to accept one; `connect`: for a user who is signed in; `password`: the provider has answered, and the
#: user's password is asked for once.
Purpose = Literal["sign_in", "invitation", "connect", "password"]


class Flow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered. It has no e-mail address: the store knows nobody's."""

    provider: str
    purpose: Purpose
    path: str  # of the console, to go to afterwards
    nonce: str = ""
    verifier: str = ""
    invitation: str = ""  # the hash of its token, in hex
    user_id: str = ""
    subject: str = ""
    granted: Granted = Granted()
    browser: str = ""  # the hash of the cookie, in hex
    address: str = ""  # an HMAC of the verified address, whose key the store does not have

    def __repr__(self) -> str:
        return f"Flow(provider={self.provider!r}, purpose={self.purpose!r})"


class Begun(Struct, frozen=True):
    """The two secrets of a flow: `state` goes through the provider, `browser` into a cookie."""

    state: str
    browser: str

    def __repr__(self) -> str:
        return "Begun(state='***', browser='***')"


class Callback(Struct, frozen=True):
    """The parameters with which the browser comes back."""

    state: str
    code: str = ""
    error: str = ""
    issuer: str = ""  # `iss`, RFC 9207

    def __repr__(self) -> str:
        return "Callback(…)"


class Flows:
    """Keeps flows in the store."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def begin(self, flow: Flow, email: str = "") -> Begun:
        """Remember a flow, and for `is_of` the verified address of its person."""
        begun = Begun(new_token(), new_token())
        name = _name(begun.state)
        flow = structs.replace(flow, browser=_hash(begun.browser), address=_keyed(begun.state, email) if email else "")
        text = msgspec.json.encode(flow)
        await self._links.link(name).call("SET", name, text, "EX", LIFETIME)
        return begun

    async def take(self, state: str, browser: str) -> Flow | None:
        """The flow, which nobody gets again; None for an unknown, used or old one, or one of another browser."""
        flow, name = await self.look(state, browser), _name(state)
        # Of those who have read it, one deletes it.
        return flow if flow is not None and await self._links.link(name).call("DEL", name) == 1 else None

    async def look(self, state: str, browser: str) -> Flow | None:
        """As `take`, but the flow stays."""
        if not state or not browser:
            return None
        name = _name(state)
        text = await self._links.link(name).call("GET", name)
        try:
            flow = msgspec.json.decode(text, type=Flow) if text is not None else None
        except msgspec.DecodeError:  # of another version
            return None
        return flow if flow is not None and hmac.compare_digest(flow.browser, _hash(browser)) else None


def is_of(flow: Flow, state: str, email: str) -> bool:
    """Whether this is the address with which the flow began."""
    return hmac.compare_digest(flow.address, _keyed(state, email))


def _keyed(state: str, email: str) -> str:
    return hmac.digest(state.encode(), email.encode(), "sha256").hex()


def _name(state: str) -> str:
    return f"oidc:flow:{_hash(state)}"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
