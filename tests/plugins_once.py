"""The installed plugins are loaded once in each process of the tests: a further gateway gets a copy.

pluggy looks at every name of each plugin's module, and hundreds of tests build a gateway. What a gateway may change is
copied: the reports and the mapping of providers. Nothing changes the hooks after loading.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec
from msgspec import structs

from gateway.config.settings import PluginSettings
from gateway.log import PluginLog
from gateway.plugins.loader import Plugins

Load = Callable[[PluginSettings], Plugins]


def loaded_once(load: Load) -> Load:
    """A replacement of `load_plugins`; it keeps nothing of a plugin that could not be loaded."""
    loaded: dict[bytes, Plugins] = {}

    def load_once(settings: PluginSettings) -> Plugins:
        key = msgspec.json.encode(settings)
        if key not in loaded:
            found = load(settings)
            if any(report.state == "failed" for report in found.reports):
                return found
            loaded[key] = found
        return _copied(loaded[key])

    return load_once


def _copied(plugins: Plugins) -> Plugins:
    mine = copy.copy(plugins)
    mine.log = PluginLog()
    mine.providers = dict(plugins.providers)
    mine.reports = [
        structs.replace(report, providers=[*report.providers], capabilities=[*report.capabilities])
        for report in plugins.reports
    ]
    return mine
