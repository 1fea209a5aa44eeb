"""Makes the running gateway of this machine read its configuration file again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.accounts.group_use import group_use, missing_groups
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.configuration_changes import OBJECT, changes
from gateway.admin.outbox import AuditOutbox
from gateway.config.loader import load
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.errors import Conflict, InvalidValue
from gateway.store.links import Links

#: Asks the supervisor with a data directory, by force or not; its process id, None if none runs.
AskReload = Callable[[Path, bool], int | None]


class ConfigurationReload:
    """Reloads of the gateway whose store this is."""

    def __init__(self, links: Links, outbox: AuditOutbox, ask: AskReload) -> None:
        self._links = links
        self._outbox = outbox
        self._ask = ask

    async def run(self, actor: Actor, settings: Settings, *, force: bool) -> dict[str, Any]:
        """Ask for a reload of the file of these settings; the supervisor's log says when it has happened.

        The event has the prices and limits that differ from these settings. A command has read them from the file; then
        only the event `configuration.change`, which the gateway adds, says what differs.

        `force`: also if accounts are in a group that the file lacks. Needs the scope `config` for the site.
        InvalidValue: the file has a fault. Conflict: no gateway runs here, it has no file, or a group is in use.
        """
        actor.require("config")
        if not settings.file:
            raise Conflict("the demo has no configuration file to read again")
        try:
            wanted = load(Path(settings.file), demo=settings.demo)
        except SettingsError as error:
            raise InvalidValue(str(error)) from None
        if not force:
            await self._check_groups(wanted)
        pid = self._ask(settings.data_dir, force)
        if pid is None:
            raise Conflict(f"no gateway runs on this machine with {settings.data_dir}")
        before, after = changes(settings, wanted)
        event = new_event(actor, "configuration.reload", OBJECT, before=before, after={**after, "forced": force})
        await self._outbox.add(event)
        return {"pid": pid, "forced": force}

    async def _check_groups(self, settings: Settings) -> None:
        missing = missing_groups(await group_use(self._links), settings.groups)
        if missing:
            raise Conflict("\n".join(f"{text}, or say --force" for text in missing.values()))
