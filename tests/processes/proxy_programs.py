"""Real proxies with the files of conf/proxies in front of two gateways.

::

    async with proxied(yard, NGINX, store_url) as front:
        async with front.client() as session:
            await session.get(f"{front.api}/v1/models", headers=front.headers)

The files are used as they are, except for addresses, ports and the paths of the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import trustme
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.rolling import PEPPER
from tests.processes.served import Served

CONF = Path(__file__).parents[2] / "conf" / "proxies"
API, CONSOLE = "gateway.example.com", "console.example.com"
CALLER = "127.0.0.9"  # the address from which a test calls a proxy
HOSTS = ("127.0.0.1", "127.0.0.2")  # of the gateways, which have the same ports, as on two machines
NGINX_MAIN = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/nginx.conf;
}}
"""
CADDY_MAIN = """
{{
	admin off
	auto_https disable_redirects
	skip_install_trust
	https_port {port}
	storage file_system {folder}/storage
}}
"""


class Ports(Struct, frozen=True):
    """Where each gateway, and the proxy, listens."""

    calls: int
    console: int
    side: int
    proxy: int


class Program(Struct, frozen=True):
    """A proxy: its program, the files of conf/proxies that it reads, and how it is started with them in a folder."""

    name: str
    files: tuple[str, ...]
    prepare: Callable[[Path, Ports], list[str]]  # the arguments
    replaced: Mapping[str, str] = {}  # what else of the files is of a machine

    @property
    def binary(self) -> str | None:
        """The program, if it is installed."""
        return shutil.which(self.name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


def _nginx(folder: Path, ports: Ports) -> list[str]:
    (folder / "main.conf").write_text(NGINX_MAIN.format(folder=folder))
    return ["-p", str(folder), "-c", str(folder / "main.conf")]


def _haproxy(folder: Path, ports: Ports) -> list[str]:
    return ["-db", "-f", str(folder / "haproxy.cfg")]


def _caddy(folder: Path, ports: Ports) -> list[str]:
    file = folder / "Caddyfile"
    file.write_text(CADDY_MAIN.format(folder=folder, port=ports.proxy) + file.read_text())
    return ["run", "--adapter", "caddyfile", "--config", str(file)]


def _traefik(folder: Path, ports: Ports) -> list[str]:
    return [f"--configFile={folder / 'traefik.yaml'}"]


NGINX = Program("nginx", ("nginx.conf",), _nginx, {"listen 443 ssl": "listen 127.0.0.1:{proxy} ssl"})
HAPROXY = Program("haproxy", ("haproxy.cfg",), _haproxy, {"bind :443 ": "bind 127.0.0.1:{proxy} "})
CADDY = Program("caddy", ("Caddyfile",), _caddy)
TRAEFIK = Program(
    "traefik",
    ("traefik.yaml", "traefik-gateway.yaml"),
    _traefik,
    {'address: ":443"': 'address: "127.0.0.1:{proxy}"', "/etc/traefik/gateway.yaml": "{folder}/traefik-gateway.yaml"},
)
PROGRAMS = (NGINX, HAPROXY, CADDY, TRAEFIK)


class Front(Struct, frozen=True):
    """Gateways behind a proxy, as callers see them."""

    gateways: list[Served]
    port: int
    trust: ssl.SSLContext

    @property
    def api(self) -> str:
        """The address of the API."""
        return f"https://{API}:{self.port}"

    @property
    def console(self) -> str:
        """The address of the console on its own host."""
        return f"https://{CONSOLE}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """With a key of the gateways."""
        return {"Authorization": f"Bearer {self.gateways[0].api_key}"}

    def connector(self) -> aiohttp.TCPConnector:
        """Connections from the address `CALLER`, for which each name is the proxy's."""
        return aiohttp.TCPConnector(ssl=self.trust, resolver=_Everywhere(), local_addr=(CALLER, 0))

    @asynccontextmanager
    async def client(self, *, seconds: float = 100.0) -> AsyncIterator[aiohttp.ClientSession]:
        """A client that keeps cookies."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with aiohttp.ClientSession(connector=self.connector(), timeout=timeout) as session:
            yield session


class _Everywhere(AbstractResolver):
    """A name server that knows the address of the proxy only."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        pass


def _written(program: Program, folder: Path, ports: Ports) -> list[str]:
    """The files and the certificate in the folder; returns the arguments of the program."""
    replaced = {
        **{
            f"10.0.0.{number}:{port}": f"{host}:{here}"
            for number, host in enumerate(HOSTS, 1)
            for port, here in ((8080, ports.calls), (8081, ports.console))
        },
        "/etc/ssl/gateway/": f"{folder}/",
        "health_port 9090": f"health_port {ports.side}",
        " port 9090": f" port {ports.side}",
        "port: 9090": f"port: {ports.side}",
        **{old: new.format(proxy=ports.proxy, folder=folder) for old, new in program.replaced.items()},
    }
    for name in program.files:
        text = (CONF / name).read_text(encoding="utf-8")
        for old, new in replaced.items():
            text = text.replace(old, new)
        assert "10.0.0." not in text
        assert ":443" not in text
        (folder / name).write_text(text, encoding="utf-8")
    return program.prepare(folder, ports)


def _certified(folder: Path) -> ssl.SSLContext:
    authority = trustme.CA()
    issued = authority.issue_cert(API, CONSOLE)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    (folder / "tls.crt").write_bytes(chain)
    (folder / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (folder / "tls.pem").write_bytes(chain + issued.private_key_pem.bytes())
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    return trust


def _environment(binary: str, folder: Path) -> dict[str, str]:
    """Libraries of a program that was unpacked, and not installed, are beside it."""
    libraries = Path(binary).parents[1] / "lib"
    unpacked = [str(one) for one in libraries.glob("*-linux-gnu")] if libraries != Path("/usr/lib") else []
    home = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    return {**os.environ, **home, **({"LD_LIBRARY_PATH": os.pathsep.join(unpacked)} if unpacked else {})}


@asynccontextmanager
async def proxied(
    yard: Yard, program: Program, store: str, models: str, *, root_path: str = "", shutdown_delay: str = ""
) -> AsyncIterator[Front]:
    """Two gateways that serve, behind the proxy. `root_path`: that of the console on the host of the API."""
    ports, folder = Ports(*free_ports(4)), yard.folder / program.name
    folder.mkdir()
    host = API if root_path else CONSOLE
    console = f'public_url = "https://{host}:{ports.proxy}{root_path}"\nroot_path = "{root_path}"'
    gateways = [
        yard.make(
            models,
            name=f"machine{number}",
            host=host,
            ports=(ports.calls, ports.side),
            console_port=ports.console,
            console=console,
            store=store,
            shutdown_delay=shutdown_delay,
            server='trusted_proxies = ["127.0.0.1"]',
        )
        for number, host in enumerate(HOSTS)
    ]
    for gateway in gateways:
        gateway.data_dir.mkdir(mode=0o700)
        pepper = gateway.data_dir / "pepper"
        pepper.write_text(PEPPER)
        pepper.chmod(0o600)
        await gateway.started()
    await asyncio.to_thread(gateways[0].create_key)
    gateways[1].api_key = gateways[0].api_key
    front = Front(gateways, ports.proxy, _certified(folder))
    async with _running(program, folder, ports), front.client() as session:
        await until(lambda: _serves(session, front))
        yield front


@asynccontextmanager
async def _running(program: Program, folder: Path, ports: Ports) -> AsyncIterator[None]:
    binary = program.binary
    assert binary is not None
    arguments = _written(program, folder, ports)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [binary, *arguments], stdout=output, stderr=output, cwd=folder, env=_environment(binary, folder)
        )
    try:
        yield
    except BaseException as error:
        error.add_note((folder / "output").read_text(errors="replace")[-4000:])
        raise
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


async def _serves(session: aiohttp.ClientSession, front: Front) -> bool:
    """Whether the proxy has found gateways that are ready."""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async with session.get(f"{front.api}/v1/models", headers=front.headers) as answer:
            return answer.status == 200
    return False
