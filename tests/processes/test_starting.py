"""What keeps a gateway from starting is said in one line; what does not is named in the log, and it serves."""

import asyncio
import socket

import pytest

from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served, install_plugin

POISONED = """
[providers.poison]
plugin = "poison"

[models.poison]
provider = "poison"
free = true
"""


async def refused(gateway: Served) -> str:
    """The last line of a gateway that does not start."""
    gateway.launch()
    assert await gateway.ended() == 1
    assert "Traceback" not in gateway.text
    return gateway.text.splitlines()[-1]


@pytest.mark.holds("operations/start.md#start-failures-1")
@pytest.mark.parametrize("workers", [1, 2])
async def test_port_in_use_is_reported_in_one_line(yard: Yard, workers: int) -> None:
    gateway = yard.make(workers=workers)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as another gateway of several workers has it
        taken.bind(("127.0.0.1", gateway.port))
        taken.listen()
        expected = f"gateway: cannot listen on 127.0.0.1:{gateway.port}: Address already in use"
        assert await refused(gateway) == expected
    assert len(gateway.text.splitlines()) == 1


@pytest.mark.holds("operations/start.md#start-failures-1")
async def test_side_port_in_use_is_reported_in_one_line(yard: Yard) -> None:
    gateway = yard.make()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", gateway.side_port))
        taken.listen()
        assert f"127.0.0.1:{gateway.side_port}" in await refused(gateway)


@pytest.mark.holds("operations/start.md#start-failures-2")
async def test_data_folder_that_cannot_be_created_is_reported_in_one_line(yard: Yard) -> None:
    gateway = yard.make()
    gateway.data_dir.write_text("a file where the folder should be")
    line = await refused(gateway)
    assert line.startswith("gateway: ")
    assert str(gateway.data_dir) in line


@pytest.mark.holds("operations/start.md#signals-6", "operations/start.md#start-failures-3")
async def test_bad_configuration_names_file_and_key(yard: Yard) -> None:
    gateway = yard.make(MODELS + "\n[server2]\nport = 1\n")
    assert f"{gateway.config}: server2: unknown key" in await refused(gateway)


@pytest.mark.holds("operations/start.md#start-failures-3")
async def test_invalid_store_address_is_reported_in_one_line(yard: Yard) -> None:
    gateway = yard.make(store="http://127.0.0.1:1")
    assert (await refused(gateway)).startswith("gateway: ")


@pytest.mark.holds("operations/start.md#start-failures-6")
async def test_plugin_whose_startup_raises_prevents_the_start(yard: Yard) -> None:
    gateway = yard.make(workers=2)
    install_plugin(
        gateway,
        "picky",
        "from gateway import hookimpl\n@hookimpl\ndef startup(gateway):\n    raise ValueError('no licence')\n",
    )
    line = await refused(gateway)
    assert line == "gateway: no worker could start; the log above says why"
    assert "plugin picky refuses to start: ValueError in startup: no licence" in gateway.text


PROVIDER = """
from gateway import Chat, Provider, hookimpl

class Poison(Provider, Chat):
    name = "poison"

    async def stream_chat(self, request, target):
        raise ZeroDivisionError("a bug in the plugin")
        yield

@hookimpl
def register_providers(register):
    register(Poison)
"""


BROKEN = {
    "absent": ("raise ImportError('its library is missing')", "ImportError: its library is missing"),
    "wrong": (
        "from gateway import hookimpl\n@hookimpl\ndef register_providers(register):\n    register(3)\n",
        "TypeError: register() takes a Provider class, not 3",
    ),
}


@pytest.mark.holds("operations/start.md#start-failures-8")
async def test_plugins_that_cannot_load_or_raise_in_a_request_are_named_and_the_others_serve(yard: Yard) -> None:
    gateway = yard.make("".join([MODELS, POISONED, *(POISONED.replace("poison", name) for name in BROKEN)]))
    install_plugin(gateway, "poison", PROVIDER)
    for name, (source, _) in BROKEN.items():
        install_plugin(gateway, name, source)
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    reports = {plugin["name"]: plugin for plugin in await gateway.command("plugins")}
    for name, (_, reason) in BROKEN.items():
        assert (await gateway.chat(name)).status == 503
        assert f"plugin {name} is not loaded: {reason}" in gateway.text
        assert (reports[name]["state"], reports[name]["reason"]) == ("failed", reason)
    workers = gateway.workers
    for _ in range(3):
        answer = await gateway.chat("poison")
        assert answer.status in (500, 502)
        assert "bug" not in answer.body["error"]["message"]
        assert (await gateway.chat()).status == 200
    await until(lambda: gateway.text.count("provider poison raised ZeroDivisionError") >= 3)
    assert gateway.workers == workers
    await until(lambda: _is_settled(gateway))
    await gateway.proved()


async def _is_settled(gateway: Served) -> bool:
    """A settlement may still be on its way when its answer has come."""
    return (await gateway.account()).held == 0


async def test_folder_named_gateway_where_it_is_started_is_not_imported(yard: Yard) -> None:
    """By no process: workers and helpers are found where the program is installed."""
    gateway = yard.make(workers=2, console_port=free_ports(1)[0])
    (gateway.folder / "gateway").mkdir()
    (gateway.folder / "gateway" / "__init__.py").write_text("raise SystemExit('the wrong gateway')\n")
    await gateway.started(workers=2)
    await until(lambda: gateway.importer != 0)
    assert "the wrong gateway" not in gateway.text
