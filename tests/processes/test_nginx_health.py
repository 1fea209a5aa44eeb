"""conf/proxies/nginx-health.sh takes gateways out of nginx's configuration by their readiness, and puts them back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.polling import until_blocking

PROGRAM = Path(__file__).parents[2] / "conf" / "proxies" / "nginx-health.sh"
CONFIGURATION = """upstream gateway_api {
    server 127.0.0.1:8080 fail_timeout=2s;
    server 127.0.0.2:8080 fail_timeout=2s;
    keepalive 64;
}
upstream gateway_console {
    server 127.0.0.1:8081 fail_timeout=2s;
    server 127.0.0.2:8081 fail_timeout=2s;
}
server {
    listen 443 ssl;
    server_name gateway.example.com;
}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


class Side:
    """The side port of a gateway that is ready as long as `status` is 200; it answers nothing if that is 0."""

    def __init__(self, host: str) -> None:
        self.status = 200
        self.accepts = True
        self.asked = 0
        self._go_on = threading.Event()
        side = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                side.asked += 1
                if not side.status:
                    side._go_on.wait()
                body = json.dumps({"ready": side.status == 200, "accepting": side.accepts}).encode()
                self.send_response(side.status if self.path == "/readyz" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.address = f"{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def go_on(self) -> None:
        """Answer what waits."""
        self._go_on.set()

    def close(self) -> None:
        """Answer no more."""
        self.status = self.status or 503
        self.go_on()
        self._server.shutdown()
        self._server.server_close()


class Watched:
    """The program, which watches two gateways, with its file."""

    def __init__(self, file: Path, sides: tuple[Side, Side], reloads: Path) -> None:
        self.file = file
        self.one, self.two = sides
        self._reloads = reloads

    @property
    def text(self) -> str:
        """The configuration."""
        return self.file.read_text()

    @property
    def reloads(self) -> int:
        """How often nginx was told to read it."""
        return len(self._reloads.read_text().splitlines())

    def out(self) -> list[str]:
        """The addresses that are out."""
        return [line.split()[1] for line in self.text.splitlines() if line.endswith(" down;")]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """The program runs, and both gateways are ready."""
    file, reloads = tmp_path / "nginx.conf", tmp_path / "reloads"
    file.write_text(CONFIGURATION)
    reloads.touch()
    told = tmp_path / "told"
    told.write_text(f"#!/bin/sh\necho >>{reloads}\n")
    told.chmod(0o755)
    sides = (Side("127.0.0.1"), Side("127.0.0.2"))
    with _running([str(PROGRAM), str(file), *(side.address for side in sides)], str(told)):
        yield Watched(file, sides, reloads)
    for side in sides:
        side.close()


@contextmanager
def _running(command: list[str], reload: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "NGINX_RELOAD": reload})
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.holds("operations/proxies.md#nginx-and-readiness-1")
@pytest.mark.parametrize("status", [503, 0], ids=["not ready", "hanging"])
def test_gateway_that_is_not_ready_is_out_until_it_is_ready_again(watched: Watched, status: int) -> None:
    watched.one.status = status
    until_blocking(watched.out)
    assert watched.out() == ["127.0.0.1:8080", "127.0.0.1:8081"]
    until_blocking(lambda: watched.reloads == 1)
    watched.one.status = 200
    watched.one.go_on()
    until_blocking(lambda: watched.text == CONFIGURATION)
    until_blocking(lambda: watched.reloads == 2)


def test_all_gateways_are_in_if_none_is_ready(watched: Watched) -> None:
    watched.one.status = 503
    until_blocking(watched.out)
    watched.two.status = 503
    until_blocking(lambda: not watched.out())
    assert watched.text == CONFIGURATION


def test_gateway_that_is_being_restarted_stays(watched: Watched) -> None:
    watched.two.accepts, watched.two.status = False, 503
    before = watched.two.asked
    until_blocking(lambda: watched.two.asked > before + 3)
    watched.two.close()
    before = watched.one.asked
    until_blocking(lambda: watched.one.asked > before + 3)
    assert watched.text == CONFIGURATION
    assert watched.reloads == 0
