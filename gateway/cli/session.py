"""A command's way to the store: opened for the command, with or without a running gateway.

::

    async def work(session: Session) -> Account:
        return await session.accounts.show(name)

    account = run(settings, work)      # `change` if it writes: what a command says it did outlives a crash

With the embedded store it uses the running server's socket, or starts the server for the moment. Sharp edge: one of
the two may be called once per command, for it makes the event loop.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from gateway.accounts.accounts import Accounts, Refused
from gateway.accounts.keys import Keys, NewKey
from gateway.accounts.pepper import peppers_of
from gateway.accounts.store_claim import claim, has_keys, prove_pepper
from gateway.admin.account_limits import AccountLimits
from gateway.admin.account_prices import AccountPrices
from gateway.admin.accounts import AccountAdmin
from gateway.admin.actor import Actor, command_line
from gateway.admin.key_changes import KeyChanges
from gateway.admin.key_editor import KeyEditor, Rotated
from gateway.admin.keys import KeyAdmin
from gateway.admin.money import MoneyAdmin
from gateway.admin.outbox import AuditOutbox
from gateway.admin.refunds import Refunds
from gateway.cli.output import note
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.ledger.known_accounts import KnownAccounts
from gateway.store import EmbeddedServer, Store
from gateway.store.address import StoreAddress
from gateway.store.configured import configured_address
from gateway.store.identity import StoreGuard
from gateway.store.known_deployment import KnownDeployment

T = TypeVar("T")

PATIENCE = 10.0  # seconds for one answer: a person waits


class Session:
    """What commands work with while the store is open."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store

    @cached_property
    def ledger(self) -> Ledger:
        """The money."""
        return Ledger(self.store, {})  # no limits: a command admits no calls

    @cached_property
    def known_accounts(self) -> KnownAccounts:
        """The number of accounts that the store is known to have."""
        return KnownAccounts(self.settings.data_dir)

    @cached_property
    def accounts(self) -> Accounts:
        """Who pays."""
        return Accounts(self.store, self.ledger)

    @cached_property
    def keys(self) -> Keys:
        """Who may call."""
        return Keys(self.store, lambda: peppers_of(self.settings).current)

    async def create_key(self, account: str, **options: Any) -> NewKey:
        """`KeyAdmin.create`, unless the store's keys have another pepper; Refused says so."""
        await self.check_pepper()
        return await self.key_admin.create(self.actor, account, **options)

    async def rotate_key(self, key_id: str, *, overlap: timedelta) -> Rotated:
        """`KeyChanges.rotate`, unless the store's keys have another pepper; Refused says so."""
        await self.check_pepper()
        return await self.key_changes.rotate(self.actor, key_id, overlap=overlap)

    async def check_pepper(self) -> None:
        """Refused if the store's keys have another pepper than the settings."""
        peppers = peppers_of(self.settings)
        identity = await claim(self.store)
        if problem := StoreGuard(peppers=peppers.fingerprints).problem(identity):
            raise Refused(problem)
        if not identity.peppers and not await has_keys(self.store):
            await prove_pepper(self.store, peppers.fingerprints)

    @cached_property
    def actor(self) -> Actor:
        """Who runs the command."""
        return command_line(login_name())

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
        return MoneyAdmin(self.accounts, Refunds(self.ledger), limits, self.outbox)

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

    async def note_doubts(self) -> None:
        """Wait as `doubts` does, and print them."""
        for doubt in await self.doubts():
            note(f"done, but {doubt}; look whether it holds")

    async def doubts(self) -> list[str]:
        """Wait until what was written is on the store's disk; in words, what could not be made sure of."""
        doubts = await self.store.doubts()
        if not self.settings.store.url:
            try:
                await asyncio.to_thread(EmbeddedServer(self.settings.data_dir).home.sync)
            except OSError as error:
                doubts.append(f"the store's file cannot be synced: {error}")
        return doubts


def login_name() -> str:
    """The login name of the person at the terminal, also behind sudo."""
    sudo = os.environ.get("SUDO_USER")
    if sudo and os.getuid() == 0:
        return sudo
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())  # a container may have users without names


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Session]:
    """The store of these settings, closed at the end."""
    async with AsyncExitStack() as stack:
        address: StoreAddress | Path | None = configured_address(settings)
        if address is None:
            address = await stack.enter_async_context(EmbeddedServer.attach_or_start(settings.data_dir))
        guard = StoreGuard(deployment=KnownDeployment(settings.data_dir).read())
        store = await Store.open(address, timeout=PATIENCE, guard=guard)
        stack.push_async_callback(store.close)
        yield Session(settings, store)


def run(settings: Settings, work: Callable[[Session], Awaitable[T]]) -> T:
    """Open the store, do `work`, close it."""

    async def session() -> T:
        async with opened(settings) as session:
            return await work(session)

    return asyncio.run(session())


def change(settings: Settings, work: Callable[[Session], Awaitable[T]]) -> T:
    """`run` for work that writes: when this returns it outlives a crash of the store, or a note says what is unsure."""

    async def changed(session: Session) -> T:
        answer = await work(session)
        await session.note_doubts()
        return answer

    return run(settings, changed)
