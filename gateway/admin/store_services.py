"""The services over the store, made once per process and settings: what commands, the admin API and pages work with."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gateway.accounts.accounts import Accounts, Refused
from gateway.accounts.keys import Keys, NewKey
from gateway.accounts.pepper import peppers_of
from gateway.accounts.store_claim import claim, has_keys, prove_pepper
from gateway.admin.account_limits import AccountLimits
from gateway.admin.account_prices import AccountPrices
from gateway.admin.accounts import AccountAdmin
from gateway.admin.actor import Actor
from gateway.admin.key_changes import KeyChanges
from gateway.admin.key_editor import KeyEditor, Rotated
from gateway.admin.keys import KeyAdmin
from gateway.admin.money import MoneyAdmin
from gateway.admin.outbox import AuditOutbox
from gateway.admin.refunds import FindArchived, Refunds
from gateway.admin.visible_keys import VisibleKeys
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.ledger.known_accounts import KnownAccounts
from gateway.store import EmbeddedServer, Store
from gateway.store.identity import StoreGuard

if TYPE_CHECKING:
    from gateway.admin.notifications import NotificationQueue


class StoreServices:
    """The services of one open store; none of them loads SQLAlchemy.

    `turn_to_import` is held by an import: two plans at once would make the same things twice. All services of a process
    share it.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        find_archived: FindArchived | None = None,
        turn_to_import: asyncio.Lock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.turn_to_import = turn_to_import or asyncio.Lock()
        self._find_archived = find_archived  # the lines of a call that are in the database alone

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(self.store, {})  # no limits: these services admit no calls

    @cached_property
    def known_accounts(self) -> KnownAccounts:
        """The number of accounts that the store is known to have."""
        return KnownAccounts(self.settings.data_dir)

    @cached_property
    def accounts(self) -> Accounts:
        """The accounts."""
        return Accounts(self.store, self.ledger)

    @cached_property
    def keys(self) -> Keys:
        """The API keys."""
        return Keys(self.store, lambda: peppers_of(self.settings))

    async def remember_accounts(self) -> None:
        """Remember the number of accounts for the next audit."""
        with suppress(OSError):  # of a data directory of another user; the next audit of that user remembers it
            self.known_accounts.raise_to(len(await self.ledger.accounts()))

    async def create_key(self, actor: Actor, account: str, **options: Any) -> NewKey:
        """`KeyAdmin.create`, unless the store's keys have another pepper; Refused says so."""
        await self.check_pepper()
        return await self.key_admin.create(actor, account, **options)

    async def rotate_key(self, actor: Actor, key_id: str, *, overlap: timedelta) -> Rotated:
        """`KeyChanges.rotate`, unless the store's keys have another pepper; Refused says so."""
        await self.check_pepper()
        return await self.key_changes.rotate(actor, key_id, overlap=overlap)

    async def check_pepper(self) -> None:
        """Refused if the store's keys have another pepper than the settings."""
        peppers = peppers_of(self.settings)
        identity = await claim(self.store)
        if problem := StoreGuard(peppers=peppers.fingerprints).problem(identity):
            raise Refused(problem)
        if not identity.peppers and not await has_keys(self.store):
            await prove_pepper(self.store, peppers.fingerprints)

    @cached_property
    def outbox(self) -> AuditOutbox:
        """Audit events that are not in the database yet."""
        return AuditOutbox(self.store)

    @cached_property
    def account_admin(self) -> AccountAdmin:
        """Changes of accounts."""
        return AccountAdmin(self.accounts, self.outbox)

    @cached_property
    def money(self) -> MoneyAdmin:
        """Refunds and limits of accounts."""
        limits = AccountLimits(self.store, self.accounts)
        return MoneyAdmin(self.accounts, Refunds(self.ledger, self._find_archived), limits, self.outbox)

    @cached_property
    def account_prices(self) -> AccountPrices:
        """Prices that accounts have of their own."""
        return AccountPrices(self.store, self.accounts, self.outbox)

    @cached_property
    def key_admin(self) -> KeyAdmin:
        """Changes of keys."""
        return KeyAdmin(self.accounts, self.keys, self.outbox)

    @cached_property
    def key_editor(self) -> KeyEditor:
        """Settings of keys."""
        return KeyEditor(self.store, self.keys)

    @cached_property
    def key_changes(self) -> KeyChanges:
        """Changes of the settings of keys."""
        return KeyChanges(self.key_editor, self.outbox)

    @cached_property
    def visible_keys(self) -> VisibleKeys:
        """The keys that a person may see."""
        return VisibleKeys(self.keys)

    @cached_property
    def notifications(self) -> NotificationQueue:
        """Events that wait for their delivery, and the thresholds of accounts."""
        from gateway.admin.notifications import NotificationQueue

        return NotificationQueue(self.store, self.accounts, self.outbox)

    async def doubts(self) -> list[str]:
        """Wait until what was written is on the store's disk; a text for each thing that could not be confirmed."""
        doubts = await self.store.doubts()
        if not self.settings.store.url:
            try:
                await asyncio.to_thread(EmbeddedServer(self.settings.data_dir).home.sync)
            except OSError as error:
                doubts.append(f"the store's file cannot be synced: {error}")
        return doubts
