"""The image and the compose file name what exists. `tox -e image` builds and runs the image."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.loader import load

ROOT = Path(__file__).parents[2]
IMAGE, COMPOSE = ROOT / "conf" / "image", ROOT / "conf" / "compose"
DOCKERFILE = (IMAGE / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"]


def copied() -> Iterator[str]:
    """What the build takes from the checkout."""
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        yield from line.split()[:-1]


def test_build_copies_what_exists_and_what_the_ignore_file_lets_through() -> None:
    kept = [line[1:] for line in (IMAGE / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in copied():
        assert (ROOT / name).exists(), name
        assert any(name == one or name.startswith(f"{one}/") for one in kept), name


@pytest.mark.holds("operations/image.md#image-1")
def test_image_runs_without_rights_and_checks_its_health() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "USER 10001:10001" in last
    assert "HEALTHCHECK" in last
    assert not re.search(r"\b(gcc|build-essential|pip)\b", last)
    assert "--require-hashes -r requirements.lock" in DOCKERFILE
    assert 'ENTRYPOINT ["gateway"]' in last


@pytest.mark.parametrize(("status", "code"), [("200 OK", 0), ("503 Service Unavailable", 1), ("", 1)])
def test_health_check_fails_unless_the_side_port_answers_200(status: str, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            wire, _ = server.accept()
            with wire:
                assert wire.recv(4096).startswith(b"GET /healthz HTTP/1.1\r\n")
                wire.sendall(f"HTTP/1.1 {status}\r\n\r\n".encode() if status else b"")

        thread = threading.Thread(target=answer)
        thread.start()
        environment = {"METRICS_PORT": str(server.getsockname()[1])}
        ended = subprocess.run([sys.executable, "-I", "-S", IMAGE / "healthy.py"], env=environment, timeout=60)
        thread.join()
    assert ended.returncode == code


def test_health_check_fails_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {"METRICS_PORT": str(free.getsockname()[1])}
        ended = subprocess.run([sys.executable, "-I", "-S", IMAGE / "healthy.py"], env=environment, timeout=60)
    assert ended.returncode == 1


@pytest.mark.holds("operations/image.md#compose-1")
def test_store_of_the_compose_file_loses_nothing() -> None:
    command = SERVICES["valkey"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"
    assert options["--maxmemory-policy"] == "noeviction"


def test_gateway_of_the_compose_file_gets_each_variable_that_its_configuration_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (COMPOSE / "gateway.toml").read_text(encoding="utf-8")
    names = set(re.findall(r'"env:(\w+)"', text))
    assert names == set(SERVICES["gateway"]["environment"])
    for name in names:
        monkeypatch.setenv(name, "redis://x:1" if name == "STORE_URL" else "postgresql://x" if "URL" in name else "sk")
    settings = load(COMPOSE / "gateway.toml")
    assert {settings.server.host, settings.metrics.host, settings.console.host} == {"0.0.0.0"}
    ports = {settings.server.port, settings.console.port}
    assert {int(one.rpartition(":")[2]) for one in SERVICES["gateway"]["ports"]} == ports
    assert all(one.startswith("127.0.0.1:") for service in SERVICES.values() for one in service.get("ports", ()))


def test_variables_of_the_compose_file_are_those_of_the_example() -> None:
    used = set(re.findall(r"\$\{(\w+):\?\}", (COMPOSE / "compose.yaml").read_text(encoding="utf-8")))
    assert used == set(re.findall(r"^(\w+)=$", (COMPOSE / "example.env").read_text(encoding="utf-8"), re.MULTILINE))


def test_files_that_the_compose_file_mounts_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (COMPOSE / source).exists(), source


def test_images_of_the_compose_file_have_a_version() -> None:
    for name, service in SERVICES.items():
        assert name == "gateway" or re.fullmatch(r"docker\.io/[\w/-]+:v?\d[\d.]*", service["image"]), service["image"]


def test_prometheus_scrapes_the_job_that_the_alerts_read() -> None:
    document = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text(encoding="utf-8"))
    [job] = document["scrape_configs"]
    assert job["job_name"] == "gateway"
    assert job["static_configs"][0]["targets"] == ["gateway:9090"]
    mounted = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{name}" for name in document["rule_files"]} <= mounted
