"""Changes of API keys, each with its event in the audit trail."""

from __future__ import annotations

from typing import Any, Unpack

from gateway.accounts.accounts import Accounts, time_text
from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import KeyRecord, Keys, NewKey
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.outbox import AuditOutbox
from gateway.admin.refusals import existing_account, refusals_translated
from gateway.amounts import format_amount
from gateway.errors import Forbidden, NotFound


class KeyAdmin:
    """What operators do with keys of any account, and owners with keys of theirs."""

    def __init__(self, accounts: Accounts, keys: Keys, outbox: AuditOutbox) -> None:
        self._accounts = accounts
        self._keys = keys
        self._outbox = outbox

    async def create(
        self,
        actor: Actor,
        account: str,
        *,
        name: str = "",
        show_cost: bool = False,
        user: str = "",
        text: str = "",
        **limits: Unpack[KeyLimits],
    ) -> NewKey:
        """Create a key; its text is only in the result. `text`: see `Keys.create`.

        `user`: the id of a member, which the caller has checked.
        """
        require_key_rights(actor, account, user)
        await existing_account(self._accounts, account)
        with refusals_translated():
            key = await self._keys.create(account, name=name, show_cost=show_cost, user=user, text=text, **limits)
        after = {"name": name, **({"user": user} if user else {}), **_shown(limits)}
        await self._outbox.add(new_event(actor, "keys.create", f"key:{key.id}", account=account, after=after))
        return key

    async def revoke(self, actor: Actor, key_id: str) -> KeyRecord:
        """Revoke a key permanently and at once; a second call changes nothing. NotFound for an unknown key."""
        key = await self._keys.find(key_id)
        if key is None:
            raise NotFound(f"no key {key_id!r}")
        require_key_rights(actor, key.account, key.user or "")
        if key.state == "revoked":
            return key
        with refusals_translated():
            revoked = await self._keys.revoke(key_id)
        sides: dict[str, dict[str, Any]] = {"before": {"state": key.state}, "after": {"state": revoked.state}}
        await self._outbox.add(new_event(actor, "keys.revoke", f"key:{key_id}", account=key.account, **sides))
        return revoked


def require_key_rights(actor: Actor, account: str, user: str = "") -> None:
    """Raise Forbidden unless the actor may change keys of the account, or is the member `user` of it."""
    is_own = bool(user) and actor.kind == "user" and actor.id == user and account in actor.memberships
    if not is_own and not actor.may("keys", account) and not actor.owns(account):
        raise Forbidden("This needs the scope 'keys', or an owner of the account")


def require_key_reader(actor: Actor, account: str, user: str) -> None:
    """Raise Forbidden unless the actor may see the keys of `user` in the account, or is that user."""
    is_self = actor.kind == "user" and actor.id == user
    if not (is_self or actor.may_read("keys", account) or actor.owns(account)):
        raise Forbidden("This needs the scope 'read' or 'keys', or an owner of the account")


def _shown(limits: KeyLimits) -> dict[str, Any]:
    shown: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if (budget := limits.get("budget")) is not None:
        shown["budget"] = format_amount(budget)
    if (expires := limits.get("expires")) is not None:
        shown["expires"] = time_text(expires)
    if (models := limits.get("models")) is not None:
        shown["models"] = list(models)
    return shown
