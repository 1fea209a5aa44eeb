"""The plugins as documents: what is loaded, what it can do, and why something is not."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from gateway.config.secret_references import secret_texts
from gateway.config.settings import Settings
from gateway.plugins.loader import PluginReport, load_plugins
from gateway.redaction import hide
from gateway.routing.circuit_registry import HOOKS
from gateway.routing.circuit_sync import CircuitEvent


def plugin_forms(settings: Settings, events: list[CircuitEvent]) -> list[dict[str, Any]]:
    """A document per plugin, without secrets. It imports the plugins, which may take seconds."""
    reports = load_plugins(settings.plugins).reports
    quarantine(reports, settings, events, time.time())
    hidden = secret_texts(settings)
    return [msgspec.to_builtins(report) | {"reason": hide(report.reason, hidden)} for report in reports]


def quarantine(reports: list[PluginReport], settings: Settings, events: list[CircuitEvent], now: float) -> None:
    """Mark the plugins whose code the running gateway does not call now."""
    by_name = {report.name: report for report in reports}
    for item in events:
        if item.provider.startswith(HOOKS):
            _quarantine_hook(reports, settings, item, now)
            continue
        provider = settings.providers.get(item.provider)
        report = by_name.get(provider.plugin) if provider is not None else None
        if report is not None and item.cause == "plugin":
            left = max(0.0, item.left(now))
            report.state = "quarantined"
            served = f" for {item.model} ({item.capability})" if item.model else ""
            report.reason = f"the code behind provider {item.provider} keeps failing{served}; probed in {left:.0f} s"


def _quarantine_hook(reports: list[PluginReport], settings: Settings, event: CircuitEvent, now: float) -> None:
    """Mark the plugin of a hook that is not run now."""
    name = event.provider.removeprefix(HOOKS)
    hook = settings.hooks.get(name)
    report = next((one for one in reports if hook is not None and hook.plugin in one.hooks), None)
    if report is not None and event.cause:
        left = max(0.0, event.left(now))
        report.state = "quarantined"
        report.reason = f"the hook {name} keeps failing; probed in {left:.0f} s"
