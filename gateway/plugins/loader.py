"""Loads plugins: built-in ones by name, others by entry point; a failing plugin never stops the others.

`load_plugins(settings.plugins)` returns `Plugins`: the classes of providers and of asynchronous hooks by name, one
report per plugin, and the synchronous hooks.
A plugin that raises at import or at registration is reported and left out. Sharp edge: if two plugins register a
provider of the same name, a built-in one is used before a third-party one, and otherwise the first one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import pluggy
from msgspec import Struct

from gateway.config.settings import PluginSettings
from gateway.log import PluginLog, redact
from gateway.plugins import hookspecs
from gateway.plugins.hook import HOOK_CAPABILITIES, Hook, hook_capabilities
from gateway.plugins.isolation import is_plugin_error
from gateway.plugins.provider import CAPABILITIES, Provider, capabilities_of
from gateway.version import __version__

ENTRY_POINT_GROUP = "gateway"
MAX_REASON = 1000  # characters of an exception's text that a report shows

# Named as strings: the engine never imports its own providers; it loads them like other plugins.
BUILTINS: Mapping[str, str] = {
    "openai": "gateway_providers.openai",
    "azure": "gateway_providers.azure",
    "anthropic": "gateway_providers.anthropic",
    "bedrock": "gateway_providers.bedrock",
    "cohere": "gateway_providers.cohere",
    "gemini": "gateway_providers.gemini",
    "elevenlabs": "gateway_providers.elevenlabs",
    "deepgram": "gateway_providers.deepgram",
    "fake": "gateway_providers.fake",
}


class PluginRefused(Exception):
    """A plugin's `startup` hook raised, so the gateway must not start."""

    def __init__(self, plugin: str, hook: str, error: Exception) -> None:
        text = f"{type(error).__name__} in {hook}: {error}"
        super().__init__(f"plugin {plugin} refuses to start: {redact(text[:MAX_REASON])}")


class PluginReport(Struct, kw_only=True):
    """The state of one plugin, and the reason for it."""

    name: str
    version: str
    source: str  # "built-in", or the distribution it came with
    providers: list[str] = []
    hooks: list[str] = []
    capabilities: list[str] = []
    state: str = "active"  # active · failed · disabled · quarantined
    reason: str = ""


class HookCall(Struct, frozen=True):
    """One plugin's implementation of a hook, which takes those of the hook's arguments that it names."""

    plugin: str
    function: Callable[..., object]
    names: tuple[str, ...]

    def with_arguments(self, **arguments: Any) -> Callable[[], object]:
        """The call with its part of the arguments."""
        return partial(self.function, *(arguments[name] for name in self.names))


class Plugins:
    """Every loaded plugin: provider classes, reports, hooks."""

    def __init__(self, log: PluginLog | None = None) -> None:
        self.log = log or PluginLog()
        self.providers: dict[str, type[Provider]] = {}
        self.hooks: dict[str, type[Hook]] = {}
        self.reports: list[PluginReport] = []
        self._hooks = pluggy.PluginManager("gateway")
        self._hooks.add_hookspecs(hookspecs)

    def load(self, report: PluginReport, find: Callable[[], Any]) -> None:
        """Import and register one plugin; an error goes into its report."""
        self.reports.append(report)
        try:
            module = find()
            self._hooks.register(module, name=report.name)
            self._hooks.check_pending()
            for provider in self._registered("register_providers", module):
                self._accept(report, provider)
            for hook in self._registered("register_hooks", module):
                self._accept_hook(report, hook)
        except BaseException as error:
            # Third-party code may raise anything while it loads; only this plugin fails.
            if not is_plugin_error(error):
                raise
            self._fail(report, redact(f"{type(error).__name__}: {error}"[:MAX_REASON]))

    def _registered(self, hook: str, module: Any) -> list[Any]:
        """What the plugin registers in its implementation of `hook`."""
        offered: list[Any] = []
        # Call only this plugin's implementation; the others were called before.
        others = [plugin for plugin in self._hooks.get_plugins() if plugin is not module]
        self._hooks.subset_hook_caller(hook, others)(register=offered.append)
        return offered

    def _accept(self, report: PluginReport, provider: Any) -> None:
        if not (isinstance(provider, type) and issubclass(provider, Provider)):
            raise TypeError(f"register() takes a Provider class, not {provider!r}")
        if not (isinstance(provider.name, str) and provider.name):
            raise TypeError(f"{provider.__name__} has no name")
        if provider.name in self.providers:
            raise ValueError(f"a provider named {provider.name!r} is registered already")
        self.providers[provider.name] = provider
        report.providers.append(provider.name)
        have = {*report.capabilities, *capabilities_of(provider)}
        report.capabilities = [name for name in CAPABILITIES if name in have]

    def _accept_hook(self, report: PluginReport, hook: Any) -> None:
        if not (isinstance(hook, type) and issubclass(hook, Hook)):
            raise TypeError(f"register() takes a Hook class, not {hook!r}")
        if not (isinstance(hook.name, str) and hook.name):
            raise TypeError(f"{hook.__name__} has no name")
        if hook.name in self.hooks:
            raise ValueError(f"a hook named {hook.name!r} is registered already")
        does = hook_capabilities(hook)
        if not does:
            raise TypeError(f"{hook.__name__} does nothing: it has no base class of {', '.join(HOOK_CAPABILITIES)}")
        self.hooks[hook.name] = hook
        report.hooks.append(hook.name)
        report.capabilities += [name for name in does if name not in report.capabilities]

    def _fail(self, report: PluginReport, reason: str) -> None:
        report.state, report.reason = "failed", reason
        for name in report.providers:
            self.providers.pop(name, None)
        for name in report.hooks:
            self.hooks.pop(name, None)
        report.providers, report.hooks = [], []
        if self._hooks.has_plugin(report.name):
            self._hooks.unregister(name=report.name)
        self.log.not_loaded(report.name, reason)

    def hook_calls(self, hook: str) -> list[HookCall]:
        """Every plugin's implementation of `hook`."""
        return [
            HookCall(implementation.plugin_name, implementation.function, tuple(implementation.argnames))
            for implementation in getattr(self._hooks.hook, hook).get_hookimpls()
        ]

    def call_strict(self, hook: str, **arguments: Any) -> None:
        """Call a hook that may refuse; PluginRefused names the plugin and its reason."""
        for call in self.hook_calls(hook):
            try:
                call.with_arguments(**arguments)()
            except Exception as error:
                # Third-party code may raise anything; each exception is a refusal that names the plugin.
                raise PluginRefused(call.plugin, hook, error) from error


def load_plugins(settings: PluginSettings, *, log: PluginLog | None = None) -> Plugins:
    """Load the built-ins, then every entry point that the settings do not exclude."""
    plugins = Plugins(log)
    for report, find in (*_built_in(), *_third_party()):
        if _excluded(report, settings):
            plugins.reports.append(report)
        else:
            plugins.load(report, find)
    return plugins


def _built_in() -> Iterator[tuple[PluginReport, Callable[[], Any]]]:
    for name, path in BUILTINS.items():
        report = PluginReport(name=name, version=__version__, source="built-in")
        yield report, partial(importlib.import_module, path)


def _third_party() -> Iterator[tuple[PluginReport, Callable[[], Any]]]:
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        version, source = (point.dist.version, point.dist.name) if point.dist else ("unknown", point.value)
        yield PluginReport(name=point.name, version=version, source=source), point.load


def _excluded(report: PluginReport, settings: PluginSettings) -> bool:
    if report.name in settings.disabled:
        report.state, report.reason = "disabled", "named in plugins.disabled"
    elif settings.allow and report.source != "built-in" and report.name not in settings.allow:
        report.state, report.reason = "disabled", "not named in plugins.allow"
    return report.state == "disabled"
