"""Hooks in the configuration: what is refused, what is created again, and what becomes of one that is not created."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import pytest
from msgspec import Struct
from tornado.ioloop import IOLoop

from gateway import CheckCall, CheckedCall, Hook, hookimpl
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings
from gateway.config.toml_reader import SettingsError
from gateway.plugins.loader import PluginReport, load_plugins
from gateway.routing.circuit_sync import CircuitEvent
from gateway.runtime.gateway import Gateway
from gateway.setup.configuration_check import CheckOptions, check_configuration
from gateway.setup.plugin_reports import quarantine
from gateway.store import Store
from tests.conftest import PEPPER

from .conftest import Client, Scripted


def problems(document: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as error:
        parse(document, demo=True)
    return str(error.value)


def test_names_of_hooks_that_are_not_there_are_problems(document: dict[str, Any]) -> None:
    document["models"]["m"]["hooks"] = ["chekc"]
    document["models"]["up/*"] = {"provider": "up", "price": "public", "hooks": ["none"]}
    document["server"] = {"authenticate": ["sso"]}
    found = problems(document)
    assert "models.m.hooks[0]: no hook is named 'chekc'; nearest: \"check\"" in found
    assert "no hook is named 'none'" in found and "no hook is named 'sso'" in found


@pytest.mark.parametrize(
    ("key", "value"), [("timeout", 0), ("timeout", 61), ("concurrency", 0), ("on_failure", "ajar"), ("streams", "no")]
)
def test_bounds_of_a_hook_are_checked(document: dict[str, Any], key: str, value: Any) -> None:
    document["hooks"]["check"][key] = value
    assert f"hooks.check.{key}" in problems(document)


class Picky(Hook, CheckCall):
    """Has an option, and counts its ends."""

    name = "picky"
    closed: ClassVar[list[str]] = []

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        word: str = "a"

    async def start(self) -> None:
        if self.options.word == "bad":
            raise RuntimeError("no bad words")

    async def close(self) -> None:
        self.closed.append(self.options.word)

    async def check_call(self, call: CheckedCall) -> Any:
        return call.with_texts(lambda text: text.replace("Hi", self.options.word))


@pytest.fixture
def document(document: dict[str, Any]) -> dict[str, Any]:
    document["hooks"] = {"check": {"plugin": "scripted"}, "picky": {"plugin": "picky", "word": "one"}}
    document["models"]["p"] = {**document["models"]["m"], "hooks": ["picky", "check"]}
    return document


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, document: dict[str, Any], scripted: type[Scripted]) -> Any:
    plugins = load_plugins(PluginSettings())
    module = plugin(Scripted, Picky)
    plugins.load(PluginReport(name="both", version="0", source="test"), lambda: module)
    settings = parse(document, demo=True)
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    gateway.overload.max_lag = 0.0
    Picky.closed.clear()
    yield gateway
    io_loop.run_sync(gateway.close)


def plugin(*classes: Any) -> ModuleType:
    """A plugin with these hooks."""

    def register_hooks(register: Any) -> None:
        for one in classes:
            register(one)

    module = ModuleType("plugin")
    module.register_hooks = hookimpl(register_hooks)  # type: ignore[attr-defined]
    return module


async def said(client: Client, scripted: type[Scripted]) -> str:
    """What the second hook of the model sees, after the first one."""
    scripted.calls.clear()
    assert (await client.chat(model="p"))[0].status == 200
    return str(scripted.calls[-1].document["messages"][0]["content"])


async def test_a_reload_makes_a_hook_again_if_its_settings_changed(
    client: Client, gateway: Gateway, scripted: type[Scripted], document: dict[str, Any]
) -> None:
    assert await said(client, scripted) == "one"
    same = gateway.call_hooks.runners["check"]
    document["hooks"]["picky"]["word"] = "two"
    await gateway.reload(parse(document, demo=True))
    assert await said(client, scripted) == "two"
    assert gateway.call_hooks.runners["check"] is same
    await gateway.call_hooks.close()
    assert sorted(Picky.closed) == ["one", "two"]


@pytest.mark.parametrize("wrong", [{"word": "bad"}, {"word": 7}, {"wrod": "x"}, {"plugin": "none"}])
async def test_a_reload_with_a_hook_that_cannot_be_created_is_refused(
    client: Client, gateway: Gateway, scripted: type[Scripted], document: dict[str, Any], wrong: Any
) -> None:
    document["hooks"]["picky"] = {**document["hooks"]["picky"], **wrong}
    with pytest.raises(SettingsError, match=r"hooks\.picky"):
        await gateway.reload(parse(document, demo=True))
    assert await said(client, scripted) == "one"


class TestBroken:
    """Both hooks cannot be created at the start."""

    @pytest.fixture
    def document(self, document: dict[str, Any]) -> dict[str, Any]:
        document["hooks"] = {
            "check": {"plugin": "no-such-hook"},
            "picky": {"plugin": "picky", "word": "bad", "on_failure": "open"},
        }
        document["models"]["p"]["hooks"] = ["picky"]
        return document

    async def test_models_are_served_without_a_hook_only_if_it_says_so(self, client: Client) -> None:
        assert [(await client.chat(model=name))[0].status for name in ("m", "p", "free")] == [503, 200, 200]


async def test_gateway_check_finds_hooks_that_cannot_be_created(tmp_path: Any) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[hooks.a]\nplugin = "nothing"\n[groups.default]\n')
    found = await check_configuration(file, CheckOptions(offline=True))
    [fault] = found.faults
    assert fault.key == "hooks.a.plugin" and fault.message.startswith("no hook 'nothing' is loaded")


def test_a_class_that_is_no_hook_fails_its_plugin_alone() -> None:
    class Idle(Hook):
        name = "idle"

    for wrong in (Idle, object, "text"):
        plugins, module = load_plugins(PluginSettings()), plugin(Picky, wrong)
        report = PluginReport(name="wrong", version="0", source="test")
        plugins.load(report, [module].pop)
        assert report.state == "failed" and "picky" not in plugins.hooks and plugins.providers


def test_the_list_of_plugins_says_which_hook_is_quarantined(document: dict[str, Any]) -> None:
    report = PluginReport(name="both", version="0", source="test", hooks=["picky"])
    event = CircuitEvent("w", "hooks/picky", cause="plugin", seconds=30.0, at=1000.0)
    quarantine([report], parse(document, demo=True), [event], 1010.0)
    assert (report.state, report.reason) == ("quarantined", "the hook picky keeps failing; probed in 20 s")
