"""The key with which the console calls models for a user: one for each account, and its text is never shown.

The text follows from the pepper, the account and the user, so it is stored nowhere and every console finds the same
key. If the user revokes the key, the next call makes another one.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

from gateway.accounts.keys import Keys
from gateway.accounts.pepper import derive
from gateway.admin.actor import Actor
from gateway.admin.keys import KeyService
from gateway.errors import AlreadyExists, Forbidden, InvalidValue
from gateway.people.member_keys import MemberKeys

NAME = "Playground"
MOST = 100  # keys that one user may revoke in one account


class PlaygroundKeys:
    """Makes and finds these keys."""

    def __init__(self, pepper: bytes, keys: Keys, member_keys: MemberKeys, service: KeyService) -> None:
        self._secret = derive(pepper, "playground")
        self._keys = keys
        self._member_keys = member_keys
        self._service = service

    async def text(self, actor: Actor, account: str) -> str:
        """The text of the actor's key. Forbidden for an actor who is no member of the account, or has it disabled."""
        if actor.kind != "user" or account not in actor.memberships:
            raise Forbidden("Only members of the account can use its models here")
        await self._service.check_pepper()
        for number in range(MOST):
            text = self._text(account, actor.id, number)
            owner = await self._keys.owner_of(text)
            if owner is None:
                return await self._created(actor, account, text)
            record = await self._keys.find(owner[1])
            if record is not None and record.state == "disabled":
                raise Forbidden("Your key of the playground is disabled")
            if record is not None and record.state == "active":
                return text
        raise InvalidValue(f"You have revoked {MOST} keys of the playground: no further one is made")

    async def _created(self, actor: Actor, account: str, text: str) -> str:
        try:
            await self._member_keys.create(actor, account, actor.id, name=NAME, text=text)
        except (AlreadyExists, InvalidValue):
            if await self._keys.owner_of(text) is None:  # else another request was faster
                raise
        return text

    def _text(self, account: str, user_id: str, number: int) -> str:
        message = f"{account}:{user_id}:{number}".encode()
        return "sk-" + urlsafe_b64encode(hmac.digest(self._secret, message, "sha256")).decode().rstrip("=")
