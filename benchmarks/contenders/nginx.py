"""nginx with proxy_pass: C, no look into the bodies, nothing governed. A bound, not a peer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders.contender import Contender, Place, Running, await_ready
from benchmarks.processes import running
from gateway.testing.ports import free_ports

CONFIG = """\
{user}
daemon off;
pid nginx.pid;
error_log error.log warn;
worker_processes {workers};
# Twice what is needed: nginx closes connections of its own accord when only a sixteenth of them is left.
events {{ worker_connections 40000; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000000;
    tcp_nodelay on;
    upstream mock {{
        server 127.0.0.1:{upstream};
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} reuseport backlog=4096;
        location / {{
            proxy_pass http://mock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 1200s;
        }}
    }}
}}
"""


class Nginx(Contender):
    """The nginx on PATH, with a configuration and folder of its own."""

    name = "nginx"
    scales = True

    def absent(self) -> str:
        """Without nginx on PATH."""
        return "" if find_nginx() else "no nginx on PATH"

    @contextmanager
    def running(self, place: Place) -> Iterator[Running]:
        """In the foreground; one worker process per core."""
        [port] = free_ports(1)
        config = place.folder / "nginx.conf"
        config.write_text(
            CONFIG.format(
                # As root, nginx's workers would become a user who may not enter the folder.
                user="user root;" if os.geteuid() == 0 else "",
                workers=place.workers,
                upstream=place.upstream.port,
                port=port,
            ),
            encoding="utf-8",
        )
        log = place.folder / "nginx.log"
        command = [find_nginx(), "-p", str(place.folder), "-c", str(config), "-e", str(place.folder / "start.log")]
        with running(command, log=log, cores=place.cores.contender) as process:
            server = Running(port=port, pids=(process.pid,))
            await_ready(self.name, server, process)
            yield server


def find_nginx() -> str:
    """The program, or nothing; Debian puts it where only root's PATH looks."""
    return shutil.which("nginx") or next(
        (p for p in ("/usr/sbin/nginx", "/usr/local/sbin/nginx") if Path(p).exists()), ""
    )
