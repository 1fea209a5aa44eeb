"""Keys of users. Only a member of an account has keys of it.

When a user leaves an account or is erased, the keys there are revoked. The keys of a disabled user are disabled, and
work again when the user is enabled. A key may be created while its user leaves: `create` checks the membership again
after the key is in the store, and the end of a membership reads the keys again after that. So it checks the session of
a user who creates their own key. A rotation checks the state
of the old key again, so the keys of a user who is disabled are read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, Unpack

from sqlalchemy.engine import Connection

from gateway.accounts.key_record import CreatedKey, KeyRecord
from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import Keys
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.keys import KeyService
from gateway.admin.outbox import AuditOutbox
from gateway.admin.rights import require_manages_keys, require_reads_keys
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id
from gateway.errors import GatewayError, InvalidValue, NotFound

T = TypeVar("T")


class MemberKeys:
    """What operators and owners do with keys of users, and users with their own."""

    def __init__(self, transactions: Transactions, service: KeyService, keys: Keys, outbox: AuditOutbox) -> None:
        self._transactions = transactions
        self._service = service
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
    ) -> CreatedKey:
        """Create a key of a user; InvalidValue unless they are an active member of the account.

        `text`: see `Keys.create`.
        """
        require_manages_keys(actor, account, user_id)
        await self._require_member(account, user_id)
        key = await self._service.create(
            actor, account, name=name, show_cost=show_cost, user=user_id, text=text, **limits
        )
        try:
            await self._require_member(account, user_id)
            if actor.kind == "user" and actor.id == user_id:  # others may have become the user meanwhile
                await self._transactions.require_current(actor)
        except GatewayError:
            await self._service.revoke(actor, await self._keys.show(key.id))
            raise
        return key

    async def list(self, actor: Actor, user_id: str, account: str = "") -> list[KeyRecord]:
        """The keys of a user in an account, or in all accounts that the user belongs to, oldest first."""
        user = await self._transactions.read(user_by_id, user_id)
        accounts = [account] if account else sorted(user.accounts)
        for name in accounts:
            require_reads_keys(actor, name, user_id)
        found = [key for name in accounts for key in await self._keys.of_user(name, user_id)]
        return sorted(found, key=lambda key: (key.created, key.id))

    async def _revoke_all(self, actor: Actor, user_id: str, accounts: Iterable[str]) -> None:
        """Revoke the user's keys in these accounts; the caller has checked that the actor may."""
        for key in await self._of(user_id, accounts):
            if key.state != "revoked":
                await self._keys.revoke(key.id)
                await self._record(actor, "revoke", key, "revoked")

    async def revoke_with(
        self,
        actor: Actor,
        user_id: str,
        accounts: Iterable[str],
        change: Callable[[Connection], T],
        *,
        ended: Callable[[T], Iterable[str]] | None = None,
    ) -> T:
        """Write a change with which the user loses their keys in these accounts.

        A change that is refused revokes nothing. The keys are revoked before the change, so that it can be repeated if
        the store fails, and once more after it: a key may be created meanwhile. `ended`: the accounts that the change
        says it has ended, because the user may have joined another one meanwhile.
        """
        accounts = list(accounts)
        if accounts:
            await self._transactions.rehearse(change)
        await self._revoke_all(actor, user_id, accounts)
        changed = await self._transactions.write(change)
        await self._revoke_all(actor, user_id, sorted({*accounts, *(ended(changed) if ended is not None else ())}))
        return changed

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
        except NotFound:  # the same as for a user of other accounts
            raise InvalidValue("The user is no member of this account", param="user") from None
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
