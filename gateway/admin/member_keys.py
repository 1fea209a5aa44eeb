"""Keys of users. Only a member of an account has keys of it.

When a user leaves an account or is erased, the keys there are revoked. The keys of a disabled user are disabled, and
work again when the user is enabled. A key may be created while its user leaves: `create` checks the membership again
after the key is in the store, and the end of a membership reads the keys again after that. A rotation checks the state
of the old key again, so the keys of a user who is disabled are read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Unpack

from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import KeyRecord, Keys, NewKey
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.keys import KeyAdmin, require_key_reader, require_key_rights
from gateway.admin.outbox import AuditOutbox
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id
from gateway.errors import GatewayError, InvalidValue, NotFound


class MemberKeys:
    """What operators and owners do with keys of users, and users with their own."""

    def __init__(self, transactions: Transactions, admin: KeyAdmin, keys: Keys, outbox: AuditOutbox) -> None:
        self._transactions = transactions
        self._admin = admin
        self._keys = keys
        self._outbox = outbox

    async def create(
        self,
        actor: Actor,
        account: str,
        user_id: str,
        *,
        name: str = "",
        show_cost: bool = False,
        text: str = "",
        **limits: Unpack[KeyLimits],
    ) -> NewKey:
        """Create a key of a user; InvalidValue unless they are an active member of the account.

        `text`: see `Keys.create`.
        """
        require_key_rights(actor, account, user_id)
        await self._require_member(account, user_id)
        key = await self._admin.create(
            actor, account, name=name, show_cost=show_cost, user=user_id, text=text, **limits
        )
        try:
            await self._require_member(account, user_id)
        except GatewayError:
            await self._admin.revoke(actor, key.id)
            raise
        return key

    async def list(self, actor: Actor, user_id: str, account: str = "") -> list[KeyRecord]:
        """The keys of a user in an account, or in all accounts that the user belongs to, oldest first."""
        user = await self._transactions.read(user_by_id, user_id)
        accounts = [account] if account else sorted(user.accounts)
        for name in accounts:
            require_key_reader(actor, name, user_id)
        found = [key for name in accounts for key in await self._keys.of_user(name, user_id)]
        return sorted(found, key=lambda key: (key.created, key.id))

    async def revoke_all(self, actor: Actor, user_id: str, accounts: Iterable[str]) -> None:
        """Revoke the user's keys in these accounts; the caller has checked that the actor may."""
        for key in await self._of(user_id, accounts):
            if key.state != "revoked":
                await self._keys.revoke(key.id)
                await self._record(actor, "revoke", key, "revoked")

    async def disable_all(self, actor: Actor, user: User) -> None:
        """Disable the active keys of a user who was disabled."""
        for _ in range(2):
            for key in await self._of(user.id, user.accounts):
                if await self._keys.disable(key):
                    await self._record(actor, "disable", key, "disabled")

    async def enable_all(self, actor: Actor, user: User) -> None:
        """Enable the keys of a user again that `disable_all` has disabled."""
        for key in await self._of(user.id, user.accounts):
            if await self._keys.enable(key):
                await self._record(actor, "enable", key, "active")

    async def _of(self, user_id: str, accounts: Iterable[str]) -> Sequence[KeyRecord]:
        return [key for account in accounts for key in await self._keys.of_user(account, user_id)]

    async def _require_member(self, account: str, user_id: str) -> None:
        try:
            user = await self._transactions.read(user_by_id, user_id)
        except NotFound:
            raise InvalidValue("There is no such user", param="user") from None
        if account not in user.accounts:
            raise InvalidValue("The user is no member of this account", param="user")
        if user.state != "active":
            raise InvalidValue("The user is disabled", param="user")

    async def _record(self, actor: Actor, action: str, key: KeyRecord, state: str) -> None:
        event = new_event(
            actor,
            f"keys.{action}",
            f"key:{key.id}",
            account=key.account,
            before={"state": key.state},
            after={"state": state},
        )
        await self._outbox.add(event)
