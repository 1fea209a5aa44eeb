"""nginx with the file of conf/proxies, which is used as it is but for the third gateway, the port and the certificate.

The log has for each request the name that its client gave to the attempt, and the gateways that it was sent to.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
from pathlib import Path

import trustme

from tests.fleet.network import FRONT, SIDE
from tests.polling import until_blocking
from tests.processes.proxy_programs import API, CONF, CONSOLE, NGINX, _environment

PORT = 8443
MAIN = """
daemon on;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{}}
http {{
    log_format fleet '$http_x_attempt $upstream_addr $status $upstream_status';
    access_log {folder}/access.log fleet;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/nginx.conf;
}}
"""


class Nginx:
    """The running proxy."""

    def __init__(self, folder: Path, *, with_health: bool) -> None:
        self.folder = folder / "nginx"
        self.folder.mkdir()
        assert NGINX.binary is not None, "nginx is not on PATH"
        self._binary = NGINX.binary
        self._environment = _environment(self._binary, self.folder)
        self._with_health = with_health
        self._health: subprocess.Popen[bytes] | None = None
        self.trust = self._write()

    def _write(self) -> ssl.SSLContext:
        text = (CONF / "nginx.conf").read_text(encoding="utf-8")
        for port in (8080, 8081):
            line = f"server 10.0.0.2:{port}"
            text = text.replace(line, f"server 10.0.0.3:{port} fail_timeout=2s;\n    {line}")
        text = text.replace("listen 443 ssl", f"listen {FRONT}:{PORT} ssl")
        text = text.replace("/etc/ssl/gateway/", f"{self.folder}/").replace("/etc/nginx/", f"{self.folder}/")
        (self.folder / "nginx.conf").write_text(text, encoding="utf-8")
        (self.folder / "main.conf").write_text(MAIN.format(folder=self.folder), encoding="utf-8")
        authority = trustme.CA()
        issued = authority.issue_cert(API, CONSOLE, FRONT)
        (self.folder / "tls.crt").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        (self.folder / "tls.key").write_bytes(issued.private_key_pem.bytes())
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        return trust

    @property
    def pid(self) -> int:
        """The first process."""
        return int((self.folder / "nginx.pid").read_text())

    def start(self) -> None:
        """Start it, and the program that asks the gateways for their health."""
        command = [self._binary, "-p", str(self.folder), "-c", str(self.folder / "main.conf")]
        subprocess.run(command, check=True, env=self._environment)
        until_blocking(lambda: (self.folder / "nginx.pid").exists(), within=10.0)
        if self._with_health:
            environment = {**self._environment, "NGINX_RELOAD": " ".join([*command, "-s", "reload"])}
            gateways = [f"10.0.0.{number}:{SIDE}" for number in (1, 2, 3)]
            program = [str(CONF / "nginx-health.sh"), str(self.folder / "nginx.conf"), *gateways]
            with (self.folder / "health.log").open("ab") as log:
                self._health = subprocess.Popen(program, stdout=log, stderr=log, env=environment)

    def reload(self) -> None:
        """Read the configuration again."""
        os.kill(self.pid, signal.SIGHUP)

    def upgrade(self) -> None:
        """Replace the program without closing the port, as nginx documents it: USR2, then QUIT of the old one."""
        old = self.pid
        os.kill(old, signal.SIGUSR2)
        until_blocking(lambda: (self.folder / "nginx.pid.oldbin").exists() and self._has_new_pid(old), within=10.0)
        time.sleep(0.5)  # the new workers are there
        os.kill(old, signal.SIGQUIT)

    def _has_new_pid(self, old: int) -> bool:
        file = self.folder / "nginx.pid"
        return file.exists() and file.read_text().strip() not in ("", str(old))

    def stop(self) -> None:
        """End it."""
        if self._health is not None:
            self._health.terminate()
            self._health.wait(10)
        os.kill(self.pid, signal.SIGTERM)

    def served_by(self) -> dict[str, str]:
        """By attempt, the address of the last gateway that it was sent to."""
        return read_access_log((self.folder / "access.log").read_text(errors="replace"))


def read_access_log(text: str) -> dict[str, str]:
    """By the name of an attempt, the address of the last gateway in nginx's log."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        addresses = [part for part in rest.replace(",", " ").split() if part.count(".") == 3]
        if name != "-" and addresses:
            found[name] = addresses[-1].partition(":")[0]
    return found
