"""`gateway check`: everything that would keep the gateway from serving as configured, found in one go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct, structs

from gateway.accounts.group_use import group_use, missing_groups
from gateway.accounts.pepper import PepperError, find_peppers, peppers_of
from gateway.accounts.store_claim import has_keys, read_identity
from gateway.cli.configuration import config_option, config_path, demo_option, json_option, read_settings
from gateway.cli.history_database import history_database
from gateway.cli.output import note, print_json
from gateway.cli.root import explained
from gateway.cli.session import Session, run
from gateway.config.file_modes import wide_modes
from gateway.config.proxy import ProxyError
from gateway.config.secret import Secret, SecretError
from gateway.config.secret_references import secret_texts
from gateway.config.settings import Settings
from gateway.config.toml_reader import Key, SettingsError, SettingsProblem, dotted, suggestion
from gateway.database.address import DatabaseAddress, address_of
from gateway.errors import StoreUnavailable
from gateway.http_client.upstream import Upstream
from gateway.ledger.import_hints import DATABASE
from gateway.log import redact
from gateway.notifications.webhook import unusable_secrets
from gateway.plugins.instances import check_options
from gateway.plugins.isolation import is_plugin_error
from gateway.plugins.loader import Plugins, load_plugins
from gateway.plugins.provider import Provider, capabilities_of
from gateway.redaction import hide
from gateway.store import StoreSetupError
from gateway.store.identity import StoreGuard


class Findings(Struct):
    """The `gateway check` document."""

    config: str
    ok: bool = True
    faults: list[SettingsProblem] = []
    warnings: list[str] = []

    def add(self, message: str, *key: str | int) -> None:
        """Note that the configuration, or `key` in it, is wrong."""
        self.faults.append(SettingsProblem(self.config, dotted(key), redact(message)))

    def hide(self, texts: Sequence[str]) -> None:
        """Remove secrets, which an exception of a plugin may quote."""
        self.faults = [structs.replace(fault, message=hide(fault.message, texts)) for fault in self.faults]


@click.command()
@config_option
@demo_option
@click.option("--offline", is_flag=True, help="Check the file and the plugins alone: no secret and no store is read.")
@json_option
@click.option("--force", is_flag=True, help="Only warn of accounts whose group the configuration lacks.")
@click.pass_context
def command(ctx: click.Context, config: Path | None, demo: bool, offline: bool, as_json: bool, force: bool) -> None:
    """Validate the configuration, the plugins and the store; name file and key of each problem."""
    findings = Findings("" if demo and config is None else str(config_path(config)))
    try:
        settings = read_settings(config, demo=demo)
    except SettingsError as error:
        findings.faults += error.problems
    else:
        findings.warnings += settings.warnings
        _check_plugins(settings, findings, offline=offline)
        if not offline:
            _check_secret(settings.mail_password, findings, "mail", "password")
            for key, problem in unusable_secrets(settings):
                findings.add(problem, "notify", key)
            findings.warnings += wide_modes(settings)
            _check_store(settings, findings, force=force)
            _check_database(settings, findings)
            findings.hide(secret_texts(settings))
        note(f"models: {len(settings.models)}, providers: {len(settings.providers)}, groups: {len(settings.groups)}")
    findings.ok = not findings.faults
    for line in (*map(str, findings.faults), *(f"warning: {text}" for text in findings.warnings)):
        note(line)
    if as_json:
        print_json(findings)
    elif findings.ok:
        click.echo(f"{findings.config or 'demo'}: ok")
    ctx.exit(0 if findings.ok else 1)


def _check_plugins(settings: Settings, findings: Findings, *, offline: bool) -> None:
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # the findings say it, once
    plugins = load_plugins(settings.plugins)
    for report in plugins.reports:
        if report.state == "failed":
            findings.add(f"plugin {report.name} is not loaded: {report.reason}")
    names = {report.name for report in plugins.reports}
    for index, name in enumerate(settings.plugins.disabled):
        if name not in names:
            findings.add(f"no plugin is named {name!r}{suggestion(name, names)}", "plugins", "disabled", index)
    for name in settings.providers:
        _check_provider(settings, name, plugins, findings, offline=offline)
        if not offline:
            _check_proxy(settings, name, findings)
    _check_endpoints(settings, plugins, findings)


def _check_provider(settings: Settings, name: str, plugins: Plugins, findings: Findings, *, offline: bool) -> None:
    try:
        kind, credentials = check_options(name, settings, plugins)
    except SettingsError as error:
        findings.faults += error.problems
        return
    except BaseException as error:
        # The Options class of a third party may raise anything.
        if not is_plugin_error(error):
            raise
        findings.add(f"{type(error).__name__}: {error}", "providers", name)
        return
    for number, options in enumerate(credentials):
        place: Key = ("providers", name, *(("credentials", number) if len(credentials) > 1 else ()))
        if not offline:
            _check_secrets(options, findings, place)
        if (reason := asyncio.run(_constructed(kind, options))) is not None:
            findings.add(reason, *place)


async def _constructed(kind: type[Provider], options: Struct) -> str | None:
    """Why `gateway serve` could not create the provider; None if it can. Its `start` is not called."""
    try:
        kind(options, Upstream())
    except SecretError:
        return None  # `_check_secrets` names it
    except BaseException as error:
        # A third-party constructor may raise anything.
        if not is_plugin_error(error):
            raise
        return str(error) or type(error).__name__
    return None


def _check_secrets(options: Struct, findings: Findings, place: Key) -> None:
    for field in options.__struct_fields__:
        value = getattr(options, field)
        items = value.items() if isinstance(value, dict) else ()
        _check_secret(value, findings, *place, field)
        for name, item in items:
            _check_secret(item, findings, *place, field, str(name))


def _check_proxy(settings: Settings, name: str, findings: Findings) -> None:
    proxy = settings.providers[name].proxy
    if proxy is None:
        return
    try:
        found = proxy.resolve()
    except ProxyError as error:
        findings.add(str(error), "providers", name, "proxy")
        return
    if found.http is None and found.https is None:
        key = dotted(("providers", name, "proxy"))
        findings.warnings.append(f"{key}: neither HTTP_PROXY nor HTTPS_PROXY is set, so no proxy is used")


def _check_secret(value: object, findings: Findings, *key: str | int) -> None:
    if isinstance(value, Secret):
        try:
            value.reveal()
        except SecretError as error:
            findings.add(str(error), *key)


def _check_endpoints(settings: Settings, plugins: Plugins, findings: Findings) -> None:
    """Each endpoint of a model needs one target whose provider has the capability."""
    for name, model in settings.models.items():
        kinds = [plugins.providers.get(settings.providers[target.provider].plugin) for target in model.all_targets]
        if None in kinds:
            continue  # said already
        able = {capability for kind in kinds if kind is not None for capability in capabilities_of(kind)}
        for index, endpoint in enumerate(model.endpoints):
            if endpoint not in able:
                findings.add(f"no provider of this model serves {endpoint}", "models", name, "endpoints", index)


def _check_store(settings: Settings, findings: Findings, *, force: bool) -> None:
    async def work(session: Session) -> None:
        await session.store.probe()
        faults, unsafe = await session.store.faults(), settings.store.unsafe
        for fault in faults:
            if not unsafe:
                findings.add(f"{fault}; or accept the loss with store.unsafe = true", "store", "url")
        warnings = await session.store.warnings()
        findings.warnings += [text for text in warnings if unsafe or text not in faults]
        for group, text in missing_groups(await group_use(session.store), settings.groups).items():
            if force:
                findings.warnings.append(f"{dotted(('groups', group))}: {text}")
            else:
                findings.add(text, "groups", group)
        if problem := await _pepper_problem(session):
            findings.add(problem, "store", "pepper")

    try:
        run(settings, work)
    except Exception as error:
        # The command's edge: whatever a store can do wrong is a finding, beside the others.
        findings.add(explained(error), "store", "url" if settings.store.url else "data_dir")


async def _pepper_problem(session: Session) -> str:
    """Why the pepper is not that of the store's keys; it may be missing only while the store has no keys."""
    identity = await read_identity(session.store)
    try:
        peppers = find_peppers(session.settings)
        if peppers is not None:
            return StoreGuard(peppers=peppers.fingerprints).problem(identity)
        if (identity is not None and identity.peppers) or await has_keys(session.store):
            peppers_of(session.settings)
    except (PepperError, SecretError) as error:
        return str(error)
    return ""


def _check_database(settings: Settings, findings: Findings) -> None:
    async def work(session: Session) -> None:
        if _is_older(address_of(settings)):
            findings.warnings.append(
                "the tables of the database are older than this program; the next start upgrades them"
            )
            return
        with history_database(settings) as database:
            if database is None:
                await _check_no_database(session, findings)
                return
            from gateway.history import binding

            known = await binding.remembered(session.store)
            if known:
                binding.check(known, database)

    try:
        run(settings, work)
    except (StoreUnavailable, StoreSetupError):
        return  # said already
    except Exception as error:
        # The command's edge, as above.
        findings.add(explained(error), "database", "url")


def _is_older(address: DatabaseAddress) -> bool:
    if not address.exists:
        return False
    from gateway.database.engine import Database

    return Database.version_at(address) == "older"


async def _check_no_database(session: Session, findings: Findings) -> None:
    known = await session.store.link(DATABASE).call("GET", DATABASE)
    if known is not None:
        findings.add("the store has its history in another database, and this one is empty", "database", "url")
