"""Provider instances: one per [providers.NAME] and credential, made from the plugin's class and validated options.

A provider that cannot be created (its plugin failed, an option is wrong, it raises) is named in the log and left out.
Its models then answer 503; all others are served.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from gateway.config.proxy import ProxyError, ProxySetting
from gateway.config.secret import HIDDEN, Secret, SecretError
from gateway.config.secret_watcher import Stamp, stamp_of
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError, SettingsProblem, suggestion
from gateway.http_client.upstream import Upstream
from gateway.log import gateway_log, redact
from gateway.plugins.hook import Hook
from gateway.plugins.isolation import START_WITHIN, end_within, is_plugin_error
from gateway.plugins.loader import Plugins
from gateway.plugins.provider import Provider

K = TypeVar("K", Provider, Hook)

#: The package of the built-in providers; each has its own package or module.
BUILTIN_PACKAGE: Final = "gateway_providers"


class Instances(Struct):
    """The created providers, and the reasons why the others failed."""

    instances: dict[str, dict[int, Provider]]  # by name, then by the number of the credential
    failures: dict[str, str]
    files: dict[str, dict[Path, Stamp]]  # each provider's secret files, with their stamps from before they were read

    def reason(self, name: str) -> str:
        """Why provider `name`, or the first of its credentials, failed."""
        found = (text for label, text in self.failures.items() if label == name or label.startswith(f"{name}#"))
        return next(found, "it cannot be created")


def check_options(name: str, settings: Settings, plugins: Plugins) -> tuple[type[Provider], list[Struct]]:
    """The class and options of provider `name`, one set per credential; SettingsError names file and key."""
    plugin = settings.providers[name].plugin
    provider = plugins.providers.get(plugin)
    if provider is None:
        message = f"no provider {plugin!r} is loaded{suggestion(plugin, plugins.providers)}"
        raise SettingsError([SettingsProblem(settings.file_of("providers", name), f"providers.{name}.plugin", message)])
    numbers = range(settings.providers[name].instances)
    return provider, [settings.provider_options(name, provider.Options, credential=number) for number in numbers]


async def build_providers(
    names: Iterable[str], settings: Settings, *, plugins: Plugins, upstream: Upstream
) -> Instances:
    """Create and start the providers in `names`; failures are logged."""
    made = Instances({}, {}, {})
    for name in names:
        try:
            provider, credentials = check_options(name, settings, plugins)
        except BaseException as error:
            # The Options class of a third party may raise anything.
            if not is_plugin_error(error):
                raise
            reason = made.failures[name] = redact(str(error))
            gateway_log.error("provider %s is out of service: %s", name, reason)
            continue
        proxy, forwards = settings.providers[name].proxy, settings.providers[name].forward_headers
        made.files[name] = {path: stamp_of(path) for path in _files(credentials, proxy)}
        try:
            proxies = None if proxy is None else proxy.resolve()
            way = upstream if proxies is None and not forwards else upstream.view(proxies=proxies, forwards=forwards)
        except ProxyError as error:
            made.failures[name] = f"proxy: {error}"
            gateway_log.error("provider %s is out of service: proxy: %s", name, error)
            continue
        for number, options in enumerate(credentials):
            label = name if len(credentials) == 1 else f"{name}#{number + 1}"
            instance = await _instance(provider, options, way, label=label, failures=made.failures)
            if instance is not None:
                made.instances.setdefault(name, {})[number] = instance
    return made


async def _instance(
    provider: type[Provider], options: Struct, upstream: Upstream, *, label: str, failures: dict[str, str]
) -> Provider | None:
    instance, reason = await _started(provider, options, upstream)
    if reason:
        failures[label] = reason
        gateway_log.error("provider %s is out of service: %s", label, reason)
    return instance


async def _started(kind: type[K], options: Struct, upstream: Upstream) -> tuple[K | None, str]:
    """A started instance, or None and the reason."""
    try:
        instance = kind(options, upstream)
        await end_within(START_WITHIN, instance.start())
        instance.secret_texts = secret_texts(options)
    except BaseException as error:
        # A third-party constructor or start may raise anything; it must not stop the others.
        if not is_plugin_error(error):
            raise
        return None, without_secrets(str(error), options) or type(error).__name__
    return instance, ""


def check_hook(name: str, settings: Settings, plugins: Plugins) -> tuple[type[Hook], Struct]:
    """The class and options of hook `name`; SettingsError names file and key."""
    plugin = settings.hooks[name].plugin
    kind = plugins.hooks.get(plugin)
    if kind is None:
        message = f"no hook {plugin!r} is loaded{suggestion(plugin, plugins.hooks)}"
        raise SettingsError([SettingsProblem(settings.file_of("hooks", name), f"hooks.{name}.plugin", message)])
    return kind, settings.hook_options(name, kind.Options)


async def build_hook(name: str, settings: Settings, *, plugins: Plugins, upstream: Upstream) -> tuple[Hook | None, str]:
    """The started hook, or None and the reason, which is logged."""
    try:
        kind, options = check_hook(name, settings, plugins)
    except BaseException as error:
        # The Options class of a third party may raise anything.
        if not is_plugin_error(error):
            raise
        hook, reason = None, redact(str(error))
    else:
        hook, reason = await _started(kind, options, upstream)
    if reason:
        gateway_log.error("hook %s is out of service: %s", name, reason)
    return hook, reason


def all_instances(providers: Mapping[str, Mapping[int, Provider]]) -> list[Provider]:
    """The instances of all providers."""
    return [provider for instances in providers.values() for provider in instances.values()]


def packages(providers: Mapping[str, Mapping[int, Provider]], hooks: Mapping[str, Hook]) -> dict[str, list[str]]:
    """The packages with the code of plugins, and the names of the providers and hooks in each."""
    found: dict[str, list[str]] = {}
    named: dict[str, Provider | Hook] = {name: next(iter(them.values())) for name, them in providers.items() if them}
    for name, instance in {**named, **hooks}.items():
        steps = type(instance).__module__.split(".")
        depth = 2 if steps[0] == BUILTIN_PACKAGE else 1
        found.setdefault(".".join(steps[:depth]), []).append(name)
    return found


def _secrets(options: Struct) -> list[Secret]:
    values = [getattr(options, name) for name in options.__struct_fields__]
    values += [item for value in values if isinstance(value, dict) for item in value.values()]  # headers
    return [value for value in values if isinstance(value, Secret)]


def _files(credentials: Iterable[Struct], proxy: ProxySetting | None) -> list[Path]:
    """Every file that a provider depends on."""
    found = [secret.file for options in credentials for secret in _secrets(options)]
    return [path for path in (*found, proxy.file if proxy is not None else None) if path is not None]


def secret_texts(options: Struct) -> tuple[str, ...]:
    """The values of the secrets in the options, as far as they can be read."""
    texts = []
    for secret in _secrets(options):
        with contextlib.suppress(SecretError):
            texts.append(secret.reveal())
    return tuple(texts)


def without_secrets(text: str, options: Struct) -> str:
    """`text` without the values of the secrets in its options, which the error of a constructor may quote."""
    for secret in secret_texts(options):
        text = text.replace(secret, HIDDEN)
    return redact(text)
