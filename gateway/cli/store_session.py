"""The services over the store for a command, and what the command says about them."""

from __future__ import annotations

from functools import cached_property, partial

from gateway.admin.actor import Actor, command_line, login_name
from gateway.admin.store_services import StoreServices
from gateway.cli.history_database import find_archived_charge
from gateway.cli.output import note
from gateway.config.settings import Settings
from gateway.store import Store


class StoreSession(StoreServices):
    """What commands work with while the store is open."""

    def __init__(self, settings: Settings, store: Store) -> None:
        super().__init__(settings, store, find_archived=partial(find_archived_charge, settings, store))

    @cached_property
    def actor(self) -> Actor:
        """Who runs the command."""
        return command_line(login_name())

    async def note_unconfirmed(self) -> None:
        """Wait as `unconfirmed` does, and print them."""
        for condition in await self.unconfirmed():
            note(f"done, but {condition}; look whether it holds")
