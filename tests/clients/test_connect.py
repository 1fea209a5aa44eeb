"""The programs of the page Connect and of docs/clients.md run as they are written there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.console.clients import CLIENTS, Client, Place
from gateway.testing import RunningGateway
from tests.polling import ENDS_WITHIN

from .independent import SENTENCE

pytestmark = pytest.mark.clients

PYTHON = [client for client in CLIENTS if client.file.endswith(".py")]
NODE = [client for client in CLIENTS if client.file.endswith(".mjs")]


def by_id(client: Client) -> str:
    return client.id


def place_of(served: RunningGateway) -> Place:
    return Place(served.base_url, served.api_key, "words")


def output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=ENDS_WITHIN)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("client", PYTHON, ids=by_id)
def test_program_in_python_prints_an_answer(served: RunningGateway, client: Client, tmp_path: Path) -> None:
    (tmp_path / client.file).write_text(client.content(place_of(served)), encoding="utf-8")
    assert SENTENCE in output([sys.executable, client.file], tmp_path)


@pytest.mark.parametrize("client", NODE, ids=by_id)
def test_program_for_node_prints_an_answer(served: RunningGateway, client: Client, node_folder: Path) -> None:
    file = node_folder / f"{client.id}-{os.getpid()}.mjs"
    file.write_text(client.content(place_of(served)), encoding="utf-8")
    try:
        assert SENTENCE in output(["node", file.name], node_folder)
    finally:
        file.unlink()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_command_of_curl_prints_an_answer(served: RunningGateway, tmp_path: Path) -> None:
    [client] = [client for client in CLIENTS if client.id == "curl"]
    (tmp_path / client.file).write_text(client.content(place_of(served)), encoding="utf-8")
    assert SENTENCE in output(["sh", "-c", client.commands(place_of(served))], tmp_path)
