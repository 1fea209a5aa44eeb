"""What the processes of a run, and the tests of a process, have in common: bytecode, and the installed plugins."""

from __future__ import annotations

from gateway.config.settings import PluginSettings
from gateway.plugins.loader import Plugins, load_plugins
from tests.plugins_once import loaded_once
from tests.shared_bytecode import start_of


def test_each_worker_begins_to_collect_at_its_share_of_the_sources() -> None:
    sizes = [10, 30, 10, 40, 10]
    assert [start_of(sizes, share / 4) for share in range(4)] == [0, 2, 3, 4]
    assert start_of([100, 1], 0.75) == 1
    assert start_of([1, 100], 0.75) == start_of([], 0.5) == 0


def test_plugins_are_loaded_once_for_each_setting_and_a_change_reaches_no_other_test() -> None:
    loads: list[PluginSettings] = []

    def load(settings: PluginSettings) -> Plugins:
        loads.append(settings)
        return load_plugins(settings)

    load_once = loaded_once(load)
    first = load_once(PluginSettings())
    fresh = load_plugins(PluginSettings())
    first.providers.clear()
    first.reports[0].providers.append("another")
    first.reports.pop()
    second = load_once(PluginSettings())
    assert (second.providers, second.reports) == (fresh.providers, fresh.reports)
    assert "fake" not in load_once(PluginSettings(disabled=("fake",))).providers
    assert len(loads) == 2
