"""Whether the secrets that a configuration refers to can be read, without the plugins that declare them.

A reload asks this before any worker gets the new configuration. Sharp edge: an option counts as a reference by its
form, `env:NAME` or `file:PATH`; the plugin is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.config.proxy import ProxyError
from gateway.config.secret import Secret, SecretError
from gateway.config.settings import Settings
from gateway.config.toml_reader import Key, SettingsProblem, dotted


def references(settings: Settings) -> Iterator[tuple[Key, Secret]]:
    """Each secret of a provider of models or identities or of a hook, and its key.

    Malformed references are left out, because the options of the plugin name them.
    """
    for name, provider in settings.providers.items():
        key: Key = ("providers", name)
        yield from _references(provider.options, key, settings.folder)
        for index, credential in enumerate(provider.credentials):
            yield from _references(credential, (*key, "credentials", index), settings.folder)
    for name, hook in settings.hooks.items():
        yield from _references(hook.options, ("hooks", name), settings.folder)
    for name, oidc in settings.oidc.items():
        yield from _references(oidc.client_secret, ("oidc", name, "client_secret"), settings.folder)


def unreadable(settings: Settings) -> list[SettingsProblem]:
    """A problem for each secret and each proxy of a provider that cannot be read now."""
    found = []
    for key, secret in references(settings):
        try:
            secret.reveal()
        except SecretError as error:
            found.append(SettingsProblem(settings.file_of(*key), dotted(key), str(error)))
    for name, provider in settings.providers.items():
        try:
            if provider.proxy is not None:
                provider.proxy.resolve()
        except ProxyError as error:
            place: Key = ("providers", name, "proxy")
            found.append(SettingsProblem(settings.file_of(*place), dotted(place), str(error)))
    return found


def secret_texts(settings: Settings) -> list[str]:
    """The texts of all secrets that can be read now: no message shows them."""
    texts = []
    for _, secret in references(settings):
        try:
            texts.append(secret.reveal())
        except SecretError:
            continue
    return texts


def _references(value: Any, key: Key, folder: Path) -> Iterator[tuple[Key, Secret]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _references(item, (*key, name), folder)
    elif isinstance(value, str) and value.startswith(("env:", "file:")):
        try:
            yield key, Secret.parse(value, folder=folder)
        except SecretError:
            return
