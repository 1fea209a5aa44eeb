"""The services over the store, made once per process and settings: what commands, the admin API and pages work with.

Each service is imported where it is made: all of them are sixty modules, of which a command uses a few.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from gateway.config.settings import Settings
from gateway.ledger.known_accounts import KnownAccounts
from gateway.ledger.listing.names import account_names
from gateway.store import EmbeddedServer, Store

if TYPE_CHECKING:
    from gateway.accounts.accounts import Accounts
    from gateway.accounts.keys import Keys
    from gateway.admin.account_prices import AccountPrices
    from gateway.admin.accounts import AccountAdmin
    from gateway.admin.batches import BatchAdmin
    from gateway.admin.keys import KeyService
    from gateway.admin.money import MoneyAdmin
    from gateway.admin.notifications import NotificationQueue
    from gateway.admin.outbox import AuditOutbox
    from gateway.admin.refunds import FindArchived, Refunds
    from gateway.ledger import Ledger


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
        from gateway.ledger import Ledger

        return Ledger(self.store, {})  # no limits: these services admit no calls

    @cached_property
    def known_accounts(self) -> KnownAccounts:
        """The number of accounts that the store is known to have."""
        return KnownAccounts(self.settings.data_dir)

    @cached_property
    def accounts(self) -> Accounts:
        """The accounts."""
        from gateway.accounts.accounts import Accounts

        return Accounts(self.store, self.ledger)

    @cached_property
    def keys(self) -> Keys:
        """The stored API keys, whoever asks."""
        from gateway.accounts.keys import Keys
        from gateway.accounts.pepper import peppers_of

        return Keys(self.store, lambda: peppers_of(self.settings))

    async def remember_accounts(self) -> None:
        """Remember the number of accounts for the next audit."""
        with suppress(OSError):  # of a data directory of another user; the next audit of that user remembers it
            self.known_accounts.raise_to(await account_names(self.store).count())

    @cached_property
    def outbox(self) -> AuditOutbox:
        """Audit events that are not in the database yet."""
        from gateway.admin.outbox import AuditOutbox

        return AuditOutbox(self.store)

    @cached_property
    def account_admin(self) -> AccountAdmin:
        """Changes of accounts."""
        from gateway.admin.accounts import AccountAdmin

        return AccountAdmin(self.accounts, self.outbox)

    @cached_property
    def refunds(self) -> Refunds:
        """Refunds, without an event in the audit trail."""
        from gateway.admin.refunds import Refunds

        return Refunds(self.ledger, self._find_archived)

    @cached_property
    def money(self) -> MoneyAdmin:
        """Refunds and limits of accounts."""
        from gateway.admin.account_limits import AccountLimits
        from gateway.admin.money import MoneyAdmin

        return MoneyAdmin(self.accounts, self.refunds, AccountLimits(self.store, self.accounts), self.outbox)

    @cached_property
    def account_prices(self) -> AccountPrices:
        """Prices that accounts have of their own."""
        from gateway.admin.account_prices import AccountPrices

        return AccountPrices(self.store, self.accounts, self.outbox)

    @cached_property
    def key_service(self) -> KeyService:
        """Keys for people and programs, with their rights."""
        from gateway.accounts.key_edits import KeyEdits
        from gateway.accounts.pepper import peppers_of
        from gateway.accounts.store_claim import PepperCheck
        from gateway.admin.keys import KeyService

        pepper = PepperCheck(self.store, lambda: peppers_of(self.settings))
        return KeyService(self.accounts, self.keys, KeyEdits(self.store, self.keys), self.outbox, pepper)

    @cached_property
    def notifications(self) -> NotificationQueue:
        """Events that wait for their delivery, and the thresholds of accounts."""
        from gateway.admin.notifications import NotificationQueue

        return NotificationQueue(self.store, self.accounts, self.outbox)

    @cached_property
    def batches(self) -> BatchAdmin:
        """Batches of all accounts."""
        from gateway.admin.batches import BatchAdmin

        return BatchAdmin(self.store, self.outbox)

    async def unconfirmed(self) -> list[str]:
        """Wait until what was written is on the store's disk; a text for each thing that could not be confirmed."""
        unconfirmed = await self.store.unconfirmed()
        if not self.settings.store.url:
            try:
                await asyncio.to_thread(EmbeddedServer(self.settings.data_dir).home.sync)
            except OSError as error:
                unconfirmed.append(f"the store's file cannot be synced: {error}")
        return unconfirmed
