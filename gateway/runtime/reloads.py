"""Reloads of the configuration: read again, checked, and sent to every worker; the old one stays if anything is wrong.

A configuration that one worker refuses is taken back on all of them: they get the last one that every worker took. A
refusal names its configuration, because a newer one may have been sent meanwhile. The text that every worker took may
be read and refused again, for example without one of its secrets: then it stays. Sharp edge: settings that are read at
the start only need a restart; a reload that changes them says so in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from gateway.accounts.group_use import group_use, missing_groups
from gateway.config.configuration import Configuration
from gateway.config.secret_references import unreadable
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.errors import GatewayError
from gateway.log import gateway_log, set_level
from gateway.store import Store

MOST_PROBLEM = 500  # characters
REMEDY = "correct what its line `reload failed` names, then reload"


#: What became of a reload. `refused`: the file is not valid, or a worker could not use it and all took the old one.
Result = Literal["used", "refused", "failed"]


class Reloads:
    """The configuration in use, and its replacement by a newer one."""

    def __init__(
        self,
        configuration: Configuration,
        send: Callable[[bytes], None],
        on_result: Callable[[Result], None] = lambda result: None,
    ) -> None:
        self.problem = ""  # of the last reload; empty if it is in use
        self.problem_at = 0.0  # Unix seconds
        self._on_result = on_result
        self.settings = configuration.settings()
        self.configuration = configuration = configuration.with_tables_of(self.settings)
        self._send = send  # to every worker that runs
        self._store: Store | None = None
        self._begun = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._waiting: set[bool] = set()  # reloads that have not read the file yet, by whether they are forced
        self._taken = configuration  # the last one that every worker took
        self._refused = b""  # fingerprint of the last one that was taken back

    def begin(self, store: Store) -> None:
        """Reload from now on: the start, which needs one configuration, is over."""
        self._store = store
        self._begun.set()

    async def run(self, *, force: bool) -> None:
        """Read the file again; if it is valid, use it. `force`: also if accounts are in a group that it removes.

        Each call reads the file after it was called, so the last of several quick changes is always used.
        """
        if force in self._waiting:
            return
        self._waiting.add(force)
        await self._begun.wait()
        async with self._one_at_a_time:
            self._waiting.discard(force)
            try:
                await self._reload(force=force)
            except Exception as error:
                # The edge of a reload: a failure must not stop a gateway that serves.
                gateway_log.error("reload failed, the old configuration stays: %s", error, exc_info=error)
                self._end("failed", type(error).__name__)

    def used(self, fingerprints: Iterable[bytes]) -> None:
        """What each worker that serves uses now."""
        if set(fingerprints) == {self.configuration.fingerprint}:
            self._taken = self.configuration

    def refused(self, worker: int, fingerprint: bytes, uses: bytes) -> None:
        """The worker of this number could not use a configuration, and still serves with `uses`.

        The configuration is not used again, unless the file is read again.
        """
        new, taken = _name(fingerprint), _name(self._taken.fingerprint)
        if fingerprint == self._taken.fingerprint == uses:
            gateway_log.error(
                "worker %d could not load the configuration %s again and goes on with what it had loaded; %s",
                *(worker, new, REMEDY),
            )
        elif fingerprint == self._taken.fingerprint:
            gateway_log.error(
                "worker %d could not return to the configuration %s and still serves with %s; %s",
                *(worker, taken, _name(uses), REMEDY),
            )
        elif fingerprint == self.configuration.fingerprint:
            gateway_log.error(
                "worker %d refused the new configuration %s; all workers return to %s; %s",
                *(worker, new, taken, REMEDY),
            )
            self._use(self._taken, self._taken.settings())
            self._refused = fingerprint
            self._end("refused", f"worker {worker} could not use it; the log says why")
        elif fingerprint != self._refused:  # otherwise another worker has refused it before
            gateway_log.warning("worker %d refused the configuration %s, which a newer one has replaced", worker, new)

    async def _reload(self, *, force: bool) -> None:
        try:
            file = Path(self.configuration.file)
            configuration = await asyncio.to_thread(Configuration.read, file, demo=self.configuration.demo)
            settings = await asyncio.to_thread(configuration.settings)  # the side port is served meanwhile
            configuration = configuration.with_tables_of(settings)
            _check_secrets(settings, before=self.settings)
        except SettingsError as error:
            self._refuse(str(error).splitlines())
            return
        if not force and (problems := await self._removed_groups(settings)):
            self._refuse(problems)
            return
        for name in _fixed(self.settings, settings):
            gateway_log.warning("%s has changed, which takes a restart", name)
        log_warnings(settings)
        self._end("used")
        self._use(configuration, settings)

    def _refuse(self, problems: Sequence[str]) -> None:
        for problem in problems:
            gateway_log.error("reload refused, the old configuration stays: %s", problem)
        more = f" … and {len(problems) - 1} more" if len(problems) > 1 else ""
        self._end("refused", f"{problems[0] if problems else ''}"[:MOST_PROBLEM] + more)

    def _end(self, result: Result, problem: str = "") -> None:
        """Remember what became of the reload."""
        self.problem, self.problem_at = problem, time.time()
        self._on_result(result)

    async def _removed_groups(self, settings: Settings) -> list[str]:
        """A line for each group that `settings` removes while accounts are in it."""
        removed = self.settings.groups.keys() - settings.groups.keys()
        if not removed or self._store is None:
            return []
        try:
            use = await group_use(self._store)
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


def _name(fingerprint: bytes) -> str:
    """The beginning of what `sha256sum` prints for the file."""
    return f"sha256:{fingerprint.hex()[:12]}"


def _check_secrets(settings: Settings, *, before: Settings) -> None:
    """SettingsError if a secret cannot be read; one that the running configuration cannot read either is accepted."""
    known = {(problem.key, problem.message) for problem in unreadable(before)}
    new = [problem for problem in unreadable(settings) if (problem.key, problem.message) not in known]
    if new:
        raise SettingsError(new)


#: Keys that are read only at the start, of tables of which a reload applies others.
_AT_START: Final = {
    "server": ("host", "port", "workers", "proxy_protocol", "tls_cert", "tls_key", "tls_client_ca"),
    "server.limits": (
        "header_timeout", "keepalive_timeout", "body_timeout", "body_total_timeout", "min_body_rate", "write_timeout",
        "max_header_bytes", "max_connections", "accept_queue", "spool_dir", "keepalive_comment", "commit_after",
    ),
    "log": ("form",),
}  # fmt: skip


def _fixed(before: Settings, now: Settings) -> list[str]:
    """The changed settings that are read only at the start, by key."""
    sections = ("metrics", "store", "database", "console", "mail", "notify", "plugins")
    changed = [name for name in sections if getattr(before, name) != getattr(now, name)]
    tables: dict[str, tuple[msgspec.Struct, msgspec.Struct]] = {
        "server": (before.server, now.server),
        "server.limits": (before.server.limits, now.server.limits),
        "log": (before.log, now.log),
    }
    for table, (old, new) in tables.items():
        changed += [f"{table}.{name}" for name in _AT_START[table] if getattr(old, name) != getattr(new, name)]
    return changed
