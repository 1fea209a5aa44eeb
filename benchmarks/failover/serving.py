"""This project's gateway before the failing provider: two retries, 30 seconds and one fallback set, or tuned."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.contenders import Place, Running
from benchmarks.contenders.contender import await_ready
from benchmarks.contenders.gateway import NO_CONSOLE, Gateway, GatewayAt
from benchmarks.cores import Cores, available_cores
from benchmarks.failover.situations import SITUATIONS
from benchmarks.processes import running
from benchmarks.upstream import Upstream
from gateway.testing.ports import free_ports

PEPPER = "pepper"  # the file in a data directory

MODEL = """
[models."{name}"]
provider = "mock"
context_window = {window}
retries = 2
first_byte_timeout = 30.0
idle_timeout = 30.0
price = {{ input = 0.25, output = 2.0 }}
{further}
"""
TUNED = "first_token_timeout = 10.0\n"
TUNED_FALLBACK = 'prefill = "assistant"\n'


def models_of(*, tuned: bool) -> str:
    """The tables of the configuration."""
    text = [NO_CONSOLE]
    for situation in SITUATIONS:
        further = f'fallbacks = ["{situation.fallback}"]\n' + (TUNED if tuned else "")
        text.append(MODEL.format(name=situation.name, window=8_192, further=further))
    for name in ("healthy", "strict"):
        text.append(MODEL.format(name=name, window=128_000, further=TUNED_FALLBACK if tuned else ""))
    return "".join(text)


@contextmanager
def our_gateway(
    provider_port: int, *, tuned: bool, workers: int, replicas: int = 1, at: str = ""
) -> Iterator[list[Running]]:
    """The gateway of this checkout, or of the one at `at`, before the provider; replicas share one store."""

    class Ours(Gateway):
        def further_settings(self) -> str:
            return models_of(tuned=tuned)

    class Theirs(GatewayAt):
        def further_settings(self) -> str:
            return models_of(tuned=tuned)

    cores = available_cores()
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ExitStack() as stack:
        # Every process may use every core: the provider's times matter, not the processor's.
        shared = Cores(contender=cores, load=cores)
        place = Place(Path(name), cores=shared, upstream=Upstream(provider_port, 0), models=("mock",), workers=workers)
        contender = Theirs(at) if at else Ours()
        servers = [stack.enter_context(contender.running(place))]
        for number in range(1, replicas):
            servers.append(stack.enter_context(_replica(contender, place, servers[0], number)))
        yield servers


@contextmanager
def _replica(contender: Gateway, place: Place, first: Running, number: int) -> Iterator[Running]:
    """One more gateway with the configuration, the pepper and the store of the first one."""
    folder = place.folder / f"replica-{number}"
    (folder / "data").mkdir(parents=True)
    shutil.copy2(place.folder / "data" / PEPPER, folder / "data" / PEPPER)
    port, metrics_port = free_ports(2)
    text = (place.folder / "gateway.toml").read_text(encoding="utf-8")
    ports = iter((port, metrics_port))
    text = re.sub(r"(?m)^port = [0-9]+", lambda _: f"port = {next(ports)}", text)
    config = folder / "gateway.toml"
    config.write_text(text, encoding="utf-8")
    command, env = contender.serving(contender.environment(place))
    command = [*command, "--config", str(config)]
    with running(command, log=folder / "gateway.log", cores=place.cores.contender, env=env) as process:
        server = Running(port=port, pids=(process.pid,), headers=first.headers)
        await_ready(contender.name, server, process)
        yield server
