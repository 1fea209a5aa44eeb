"""The check of a configuration: everything that would keep the gateway from serving as configured, found in one go.

Constructors of providers, files of secrets and the database block: a process with an event loop that serves runs
`check_in_thread`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

from gateway.accounts.accounts import StoreDirectory
from gateway.accounts.group_use import group_use, missing_groups
from gateway.accounts.pepper import PepperError, find_peppers, peppers_of
from gateway.accounts.store_claim import has_keys, read_identity
from gateway.config.file_modes import wide_modes
from gateway.config.loader import demo_settings, load
from gateway.config.proxy import ProxyError, ProxySetting
from gateway.config.secret import Secret, SecretError
from gateway.config.secret_references import secret_texts
from gateway.config.settings import Settings
from gateway.config.toml_reader import Key, SettingsError, SettingsProblem, dotted, suggestion
from gateway.database.address import DatabaseAddress, address_of
from gateway.database.existing import history_database
from gateway.errors import GatewayError, NotFound, StoreUnavailable
from gateway.files.chosen import chosen_storage
from gateway.http_client.upstream import Upstream
from gateway.http_server.tls_pair import CERT, TlsProblem, read_pairs
from gateway.ledger.import_hints import DATABASE
from gateway.log import redact
from gateway.notifications.webhook import unusable_secrets
from gateway.plugins.hook import Authenticate, Hook
from gateway.plugins.instances import check_hook, check_options
from gateway.plugins.isolation import CLOSE_WITHIN, START_WITHIN, end_within, is_plugin_error
from gateway.plugins.loader import Plugins, load_plugins
from gateway.plugins.model_list import ModelList
from gateway.plugins.provider import Provider, capabilities_of
from gateway.redaction import hide
from gateway.setup.explained_errors import explained
from gateway.store import Store, StoreSetupError
from gateway.store.configured import opened_store
from gateway.store.identity import StoreGuard
from gateway.web.work_threads import CHECKS

T = TypeVar("T")


class CheckOptions(Struct, frozen=True, kw_only=True):
    """How to check."""

    demo: bool = False
    offline: bool = False  # the file and the plugins alone: no secret and no store is read
    force: bool = False  # only warn of accounts whose group the configuration lacks
    live: bool = False  # also start each provider as `gateway serve` does, and close it, and reach the storage of files


class Findings(Struct):
    """The `gateway check` document."""

    config: str
    ok: bool = True
    models: int | None = None  # how many; None for a file that cannot be read
    providers: int | None = None
    groups: int | None = None
    faults: list[SettingsProblem] = []
    warnings: list[str] = []

    def add(self, message: str, *key: str | int) -> None:
        """Note that the configuration, or `key` in it, is wrong."""
        self.faults.append(SettingsProblem(self.config, dotted(key), redact(message)))

    def place(self, settings: Settings) -> None:
        """Name the included file in which the key of a fault stands."""
        if settings.origins is not None and settings.origins.files:
            of = {dotted(key): file for key, file in settings.origins.places.items()}
            self.faults = [structs.replace(fault, file=_file_of(fault, of)) for fault in self.faults]

    def hide(self, texts: Sequence[str]) -> None:
        """Remove secrets, which an exception of a plugin may quote."""
        self.faults = [structs.replace(fault, message=hide(fault.message, texts)) for fault in self.faults]


def _file_of(fault: SettingsProblem, files: Mapping[str, str]) -> str:
    """The file of the longest of these keys that the fault's begins with."""
    found = [key for key in files if fault.key == key or fault.key.startswith((f"{key}.", f"{key}["))]
    return files[max(found, key=len)] if found else fault.file


async def check_configuration(file: Path | None, options: CheckOptions) -> Findings:
    """Check a file; without one, the configuration of the demo."""
    findings = Findings("" if file is None else str(file))
    try:
        settings = demo_settings() if file is None else load(file, demo=options.demo)
    except SettingsError as error:
        findings.faults += error.problems
        findings.ok = False
        return findings
    return await check_settings(settings, options, config=findings.config)


async def check_settings(settings: Settings, options: CheckOptions, *, config: str) -> Findings:
    """Check the settings of a file that was read; `config` is its name."""
    models = {**settings.configured.models, **settings.patterns}
    findings = Findings(config, models=len(models), providers=len(settings.providers))
    findings.groups = len(settings.groups)
    await _check(settings, findings, options)
    findings.place(settings)
    findings.ok = not findings.faults
    return findings


async def check_in_thread(file: Path | None, options: CheckOptions) -> Findings:
    """`check_configuration` on an event loop of its own, so that nothing of it blocks the caller's loop."""
    return await CHECKS.run(lambda: asyncio.run(check_configuration(file, options)))


async def _check(settings: Settings, findings: Findings, options: CheckOptions) -> None:
    findings.warnings += settings.warnings
    await _check_plugins(settings, findings, options)
    if options.offline:
        return
    _check_certificate(settings, findings)
    _check_secret(settings.mail_password, findings, "mail", "password")
    for name in settings.oidc:
        _check_secret(settings.oidc_secret(name), findings, "oidc", name, "client_secret")
    for key, problem in unusable_secrets(settings):
        findings.add(problem, "notify", key)
    findings.warnings += wide_modes(settings)
    await _check_files(settings, findings, live=options.live)
    try:
        async with opened_store(settings) as store:
            await _check_store(settings, store, findings, force=options.force)
            await _check_database(settings, store, findings)
    except Exception as error:
        # The check's edge: whatever a store can do wrong is a finding, beside the others.
        findings.add(explained(error), "store", "url" if settings.store.url else "data_dir")
    findings.hide(secret_texts(settings))


async def _check_files(settings: Settings, findings: Findings, *, live: bool) -> None:
    """The secrets of the bucket; `live`: also the place of files, which is made if it is the first use."""
    bucket = settings.files.s3
    for name in ("access_key_id", "secret_access_key"):
        if reference := getattr(bucket, name):
            secret = Secret.parse(reference, literals=settings.demo, folder=settings.folder)
            _check_secret(secret, findings, "files", "s3", name)
    if live and settings.batches.enabled:
        try:
            await chosen_storage(settings).place()
        except GatewayError as error:
            findings.add(error.log_text() or error.message, "files", "s3" if bucket.bucket else "folder")


def _check_certificate(settings: Settings, findings: Findings) -> None:
    files, now = settings.tls_files, time.time()
    if files is None:
        return
    try:
        pairs = read_pairs(files)
    except TlsProblem as error:
        findings.add(error.message, *error.key.split("."))
        return
    if problem := pairs.problem(files, now):
        findings.add(problem, *CERT.split("."))
    elif warning := pairs.warning(files, now):
        findings.warnings.append(f"{CERT}: {warning}")


async def _check_plugins(settings: Settings, findings: Findings, options: CheckOptions) -> None:
    plugins = load_plugins(settings.plugins)
    for report in plugins.reports:
        if report.state == "failed":
            findings.add(f"plugin {report.name} is not loaded: {report.reason}")
    names = {report.name for report in plugins.reports}
    for index, name in enumerate(settings.plugins.disabled):
        if name not in names:
            findings.add(f"no plugin is named {name!r}{suggestion(name, names)}", "plugins", "disabled", index)
    for name in settings.providers:
        await _check_provider(settings, name, plugins, findings, options)
        if not options.offline:
            _check_proxy(settings, name, findings)
    for name in settings.hooks:
        await _check_hook(settings, name, plugins, findings, options)
    _check_endpoints(settings, plugins, findings)


def _checked(check: Callable[[], T], findings: Findings, section: str, name: str) -> T | None:
    """The class and the options that `check` finds for `section.name`; None if they are faulty, which is noted."""
    try:
        return check()
    except SettingsError as error:
        findings.faults += error.problems
    except BaseException as error:
        # The Options class of a third party may raise anything.
        if not is_plugin_error(error):
            raise
        findings.add(f"{type(error).__name__}: {error}", section, name)
    return None


async def _check_hook(
    settings: Settings, name: str, plugins: Plugins, findings: Findings, options: CheckOptions
) -> None:
    checked = _checked(partial(check_hook, name, settings, plugins), findings, "hooks", name)
    if checked is None:
        return
    kind, keys = checked
    if not options.offline:
        _check_secrets(keys, findings, ("hooks", name))
    if (reason := await _unusable(kind, keys, live=options.live)) is not None:
        findings.add(reason, "hooks", name)
    for index, other in enumerate(settings.server.authenticate):
        if other == name and not issubclass(kind, Authenticate):
            findings.add(f"the hook {name} authenticates nobody", "server", "authenticate", index)


async def _check_provider(
    settings: Settings, name: str, plugins: Plugins, findings: Findings, options: CheckOptions
) -> None:
    checked = _checked(partial(check_options, name, settings, plugins), findings, "providers", name)
    if checked is None:
        return
    kind, credentials = checked
    if settings.providers[name].discover and not issubclass(kind, ModelList):
        findings.add(f"the plugin {settings.providers[name].plugin} cannot list models", "providers", name, "discover")
    proxy = settings.providers[name].proxy
    for number, keys in enumerate(credentials):
        place: Key = ("providers", name, *(("credentials", number) if len(credentials) > 1 else ()))
        if not options.offline:
            _check_secrets(keys, findings, place)
        if (reason := await _unusable(kind, keys, proxy if options.live else None, live=options.live)) is not None:
            findings.add(reason, *place)


async def _unusable(
    kind: type[Provider | Hook], options: Struct, proxy: ProxySetting | None = None, *, live: bool
) -> str | None:
    """Why `gateway serve` could not create the provider or the hook; None if it can. `live`: it is also started."""
    upstream = Upstream()
    try:
        provider = kind(options, upstream if proxy is None else upstream.view(proxies=proxy.resolve()))
        if live:
            await end_within(START_WITHIN, provider.start())
            await end_within(CLOSE_WITHIN, provider.close())
    except (SecretError, ProxyError):
        return None  # `_check_secrets` or `_check_proxy` names it
    except BaseException as error:
        # Third-party code may raise anything.
        if not is_plugin_error(error):
            raise
        return str(error) or type(error).__name__
    finally:
        await upstream.close()
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
    """Each endpoint of a model needs one target whose provider has the capability, and each target an endpoint."""
    for name, model in settings.configured.models.items():
        kinds = [plugins.providers.get(settings.providers[target.provider].plugin) for target in model.all_targets]
        served = [capabilities_of(kind) for kind in kinds if kind is not None]
        if len(served) < len(kinds):
            continue  # said already
        able = list(dict.fromkeys(capability for one in served for capability in one))
        for index, endpoint in enumerate(model.endpoints):
            if endpoint not in able:
                message = f"no provider of this model serves {endpoint}; its provider serves {_quoted(able)}"
                findings.add(message, "models", name, "endpoints", index)
        if set(able).isdisjoint(model.endpoints):
            continue  # said just now
        for index, one in enumerate(served):
            if set(one).isdisjoint(model.endpoints):
                key = dotted(("models", name, "targets", index))
                findings.warnings.append(
                    f"{key}: never called, because its provider serves {_quoted(one)}, "
                    f"and the model has the endpoints {_quoted(model.endpoints)}"
                )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


async def _check_store(settings: Settings, store: Store, findings: Findings, *, force: bool) -> None:
    await store.probe()
    faults, unsafe = await store.faults(), settings.store.unsafe
    for fault in faults:
        if not unsafe:
            findings.add(f"{fault}; or accept the loss with store.unsafe = true", "store", "url")
    warnings = await store.warnings()
    findings.warnings += [text for text in warnings if unsafe or text not in faults]
    for group, text in missing_groups(await group_use(store), settings.groups).items():
        if force:
            findings.warnings.append(f"{dotted(('groups', group))}: {text}")
        else:
            findings.add(text, "groups", group)
    findings.warnings += await _missing_accounts(settings, store)
    if problem := await _pepper_problem(settings, store):
        findings.add(problem, "store", "pepper")


async def _missing_accounts(settings: Settings, store: Store) -> list[str]:
    """A warning for each account that a grant names and the store does not have."""
    warnings, directory = list[str](), StoreDirectory(store)
    for name, oidc in settings.oidc.items():
        for index, grant in enumerate(oidc.grants):
            try:
                if grant.account:
                    await directory.require(grant.account)
            except NotFound as error:
                warnings.append(f"{dotted(('oidc', name, 'grants', index, 'account'))}: {error.message}")
    return warnings


async def _pepper_problem(settings: Settings, store: Store) -> str:
    """Why the pepper is not that of the store's keys; it may be missing only while the store has no keys."""
    identity = await read_identity(store)
    try:
        peppers = find_peppers(settings)
        if peppers is not None:
            return StoreGuard(peppers=peppers.fingerprints).problem(identity)
        if (identity is not None and identity.peppers) or await has_keys(store):
            peppers_of(settings)
    except (PepperError, SecretError) as error:
        return str(error)
    return ""


async def _check_database(settings: Settings, store: Store, findings: Findings) -> None:
    try:
        await _compare_database(settings, store, findings)
    except (StoreUnavailable, StoreSetupError):
        raise  # of the store, not of the database
    except Exception as error:
        # As above: whatever a database can do wrong is a finding.
        findings.add(explained(error), "database", "url")


async def _compare_database(settings: Settings, store: Store, findings: Findings) -> None:
    if _is_older(address_of(settings)):
        findings.warnings.append("the tables of the database are older than this program; the next start upgrades them")
        return
    with history_database(settings) as database:
        if database is None:
            if await store.link(DATABASE).call("GET", DATABASE) is not None:
                findings.add("the store has its history in another database, and this one is empty", "database", "url")
            return
        from gateway.history import binding

        known = await binding.remembered(store)
        if known:
            binding.check(known, database)


def _is_older(address: DatabaseAddress) -> bool:
    if not address.exists:
        return False
    from gateway.database.engine import Database

    return Database.version_at(address) == "older"
