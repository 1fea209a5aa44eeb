"""Provider instances: one per [providers.NAME], made from the plugin's class and its checked options.

A provider that cannot be made (its plugin failed, an option is wrong, it raises) is named in the log and left out; its
models then answer 503 while everything else is served.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.foreign import is_theirs
from gateway.log import gateway_log
from gateway.plugins import Plugins
from gateway.provider import Provider
from gateway.secret import HIDDEN, Secret, SecretFault
from gateway.settings import Fault, Settings, SettingsFault
from gateway.toml_reader import suggestion

if TYPE_CHECKING:
    from gateway.transport.upstream import Upstream


class Instances(Struct):
    """The providers that could be made, and why the others could not."""

    instances: dict[str, Provider]
    faults: dict[str, str]


def check_options(name: str, settings: Settings, plugins: Plugins) -> tuple[type[Provider], Struct]:
    """The class and options of provider `name`; SettingsFault says what is wrong with them, by file and key."""
    plugin = settings.providers[name].plugin
    provider = plugins.providers.get(plugin)
    if provider is None:
        message = f"no provider {plugin!r} is loaded{suggestion(plugin, plugins.providers)}"
        raise SettingsFault([Fault(settings.file, f"providers.{name}.plugin", message)])
    return provider, settings.provider_options(name, provider.Options)


async def build_providers(
    names: Iterable[str], settings: Settings, *, plugins: Plugins, upstream: Upstream
) -> Instances:
    """Make and start every provider in `names` that can be."""
    made = Instances({}, {})
    for name in names:
        options: Struct | None = None
        try:
            provider, options = check_options(name, settings, plugins)
            instance = provider(options, upstream)
            await instance.start()
        except BaseException as error:
            # Third-party constructors and start-ups raise what they like; one must not stop the others.
            if not is_theirs(error):
                raise
            fault = made.faults[name] = _without_secrets(str(error), options)
            gateway_log.error("provider %s is out of service: %s", name, fault or type(error).__name__)
        else:
            made.instances[name] = instance
    return made


def _without_secrets(text: str, options: Struct | None) -> str:
    """`text` without what the provider's own secrets hold: a constructor's complaint may quote them."""
    for name in options.__struct_fields__ if options is not None else ():
        secret = getattr(options, name)
        if isinstance(secret, Secret):
            with contextlib.suppress(SecretFault):
                text = text.replace(secret.reveal(), HIDDEN)
    return text
