"""The folder of an installation: its store, its configuration, and the commands that work on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from benchmarks.installation.size import Size
from gateway.store import EmbeddedServer
from gateway.testing.ports import free_ports

CONFIG = """\
[server]
port = {port}
workers = 1

[metrics]
port = {metrics_port}

[console]
port = {console_port}

[store]
url = "unix://{socket}"
data_dir = "data"

[providers.mock]
plugin = "openai"
base_url = "http://127.0.0.1:9/v1"
api_key = "env:BENCH_UPSTREAM_KEY"
"""

MODEL = """
[models."{name}"]
provider = "mock"
context_window = 128_000
max_output_tokens = 4096
price = {{ input = 0.25, cached_input = 0.025, output = 2.0 }}
"""
ENVIRONMENT = {"BENCH_UPSTREAM_KEY": "sk-mock"}


class InstallationPlace(Struct, frozen=True):
    """Where it is."""

    folder: Path
    socket: Path
    port: int
    metrics_port: int
    console_port: int

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "gateway.toml"

    @property
    def data_dir(self) -> Path:
        """The setting `store.data_dir`."""
        return self.folder / "data"


@contextmanager
def installation_place(folder: Path, size: Size) -> Iterator[InstallationPlace]:
    """A store that runs, and a configuration with the models of the size."""
    store = EmbeddedServer(folder / "store")
    store.start_blocking()
    try:
        place = InstallationPlace(folder, store.socket, *free_ports(3))
        text = CONFIG.format(
            port=place.port, metrics_port=place.metrics_port, console_port=place.console_port, socket=store.socket
        )
        text += "".join(MODEL.format(name=name) for name in size.model_names())
        place.config.write_text(text, encoding="utf-8")
        yield place
    finally:
        store.stop_blocking()
