"""Reloads of the configuration: read again, checked, and sent to every worker; the old one stays if anything is wrong.

A configuration that one worker refuses is taken back on all of them. Sharp edge: settings that are read at the start
only need a restart; a reload that changes them says so in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from gateway.accounts.group_use import group_use, missing_groups
from gateway.config.configuration import Configuration
from gateway.config.secret_references import unreadable
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.errors import GatewayError
from gateway.log import gateway_log, set_level
from gateway.store import Store


class Reloads:
    """The configuration in use, and its replacement by a newer one."""

    def __init__(self, configuration: Configuration, send: Callable[[bytes], None]) -> None:
        self.configuration = configuration
        self.settings = configuration.settings()
        self._send = send  # to every worker that runs
        self._one_at_a_time = asyncio.Lock()
        self._previous: Configuration | None = None  # of before the last reload, until a worker refuses that

    async def run(self, store: Store, *, force: bool) -> None:
        """Read the file again; if it is valid, use it. `force`: also if accounts are in a group that it removes."""
        async with self._one_at_a_time:
            try:
                await self._reload(store, force=force)
            except Exception as error:
                # The edge of a reload: a failure must not stop a gateway that serves.
                gateway_log.error("reload failed, the old configuration stays: %s", error, exc_info=error)

    def refused(self) -> None:
        """A worker could not use the new configuration: all workers get the old one again."""
        if self._previous is None:
            return
        previous, self._previous = self._previous, None
        gateway_log.error("a worker refused the new configuration; all workers use the old one")
        self._use(previous, previous.settings())

    async def _reload(self, store: Store, *, force: bool) -> None:
        try:
            configuration = Configuration.read(Path(self.configuration.file), demo=self.configuration.demo)
            settings = configuration.settings()
            _check_secrets(settings, before=self.settings)
        except SettingsError as error:
            _refuse(str(error).splitlines())
            return
        if not force and (problems := await self._removed_groups(settings, store)):
            _refuse(problems)
            return
        for name in _fixed(self.settings, settings):
            gateway_log.warning("%s has changed, which takes a restart", name)
        log_warnings(settings)
        self._previous = self.configuration
        self._use(configuration, settings)

    async def _removed_groups(self, settings: Settings, store: Store) -> list[str]:
        """A line for each group that `settings` removes while accounts are in it."""
        removed = self.settings.groups.keys() - settings.groups.keys()
        if not removed:
            return []
        try:
            use = await group_use(store)
        except GatewayError:
            return ["a group is removed, and the store does not say whether accounts are in it"]
        in_use = {group: found for group, found in use.items() if group in removed}
        return [f"groups.{group}: {text}" for group, text in missing_groups(in_use, settings.groups).items()]

    def _use(self, configuration: Configuration, settings: Settings) -> None:
        """Send the configuration to every worker, and to those that start later."""
        self.configuration, self.settings = configuration, settings
        set_level(settings.log.level)
        self._send(msgspec.msgpack.encode(configuration))


def log_warnings(settings: Settings) -> None:
    """Log what is valid but probably not meant."""
    for warning in settings.warnings:
        gateway_log.warning("%s", warning)


def _refuse(problems: Iterable[str]) -> None:
    for problem in problems:
        gateway_log.error("reload refused, the old configuration stays: %s", problem)


def _check_secrets(settings: Settings, *, before: Settings) -> None:
    """SettingsError if a secret cannot be read; one that the running configuration cannot read either is accepted."""
    known = {(problem.key, problem.message) for problem in unreadable(before)}
    new = [problem for problem in unreadable(settings) if (problem.key, problem.message) not in known]
    if new:
        raise SettingsError(new)


def _fixed(before: Settings, now: Settings) -> list[str]:
    """The changed settings that are read only at the start, by key."""
    sections = ("metrics", "store", "database", "console", "mail", "notify", "plugins")
    changed = [name for name in sections if getattr(before, name) != getattr(now, name)]
    at_start = [
        "host", "port", "workers", "header_timeout", "keepalive_timeout", "body_timeout", "body_total_timeout",
        "min_body_rate", "write_timeout", "max_header_bytes", "max_connections", "spool_dir", "keepalive_comment",
        "commit_after", "proxy_protocol",
    ]  # fmt: skip
    return (
        changed
        + [f"server.{name}" for name in at_start if getattr(before.server, name) != getattr(now.server, name)]
        + (["log.form"] if before.log.form != now.log.form else [])
    )
