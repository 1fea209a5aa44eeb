"""A pipe in the place of a file of the configuration is refused; reading one would block a reload for ever."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import load
from gateway.config.public_tables import PublicTables, UnreadableTable
from gateway.config.regular_files import NOT_REGULAR
from gateway.config.secret import Secret, SecretError
from gateway.config.tls_files import TlsFiles
from gateway.config.toml_reader import SettingsError
from gateway.http_server.tls_pair import TlsProblem, read_pairs


def text_of(error: type[Exception], read: Callable[[], Any]) -> str:
    """The text of the error, which comes at once: a thread that blocks does not keep the test."""
    found = list[BaseException | None]()

    def reading() -> None:
        try:
            read()
            found.append(None)
        except Exception as caught:
            found.append(caught)

    thread = threading.Thread(target=reading, daemon=True)
    thread.start()
    thread.join(20.0)
    assert found, "reading blocks"
    assert isinstance(found[0], error), found
    return "; ".join(map(str, getattr(found[0], "problems", [found[0]])))


@pytest.fixture(params=["pipe", "link", "device"])
def pipe(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A pipe without a writer, a link to one, or a link to a device."""
    os.mkfifo(fifo := tmp_path / "fifo.toml")
    if request.param == "pipe":
        return fifo
    link = tmp_path / "link.toml"
    link.symlink_to(fifo if request.param == "link" else "/dev/null")
    return link


def test_a_pipe_among_the_files_of_a_configuration_is_refused(tmp_path: Path, pipe: Path) -> None:
    assert f"{pipe}: cannot be read: {NOT_REGULAR}" in text_of(SettingsError, lambda: load(pipe))
    main = tmp_path / "main" / "gateway.toml"
    main.parent.mkdir()
    for pattern in (str(pipe), "../[fl]i[fn]*.toml"):
        main.write_text(f'include = ["{pattern}"]\n')
        assert NOT_REGULAR in text_of(SettingsError, lambda: load(main))


def test_a_pipe_with_a_secret_is_refused(pipe: Path) -> None:
    secret = Secret.parse(f"file:{pipe}")
    assert text_of(SecretError, secret.reveal) == f"file {pipe} cannot be read: {NOT_REGULAR}"


def test_a_pipe_with_a_certificate_is_refused(tmp_path: Path, pipe: Path) -> None:
    files = TlsFiles(cert=pipe, key=tmp_path / "key.pem")
    assert text_of(TlsProblem, lambda: read_pairs(files)) == f"server.tls_cert: {pipe} cannot be read: {NOT_REGULAR}"


def test_a_pipe_among_the_public_prices_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "prices"
    folder.mkdir()
    os.mkfifo(folder / "2026-11-30.toml")
    tables = PublicTables.of(tmp_path, "")
    assert NOT_REGULAR in text_of(UnreadableTable, lambda: tables.read("2026-11-30"))


def test_a_socket_is_refused_and_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert "cannot be read" in text_of(SecretError, Secret.parse(f"file:{tmp_path}/s").reveal)
    (tmp_path / "file").write_text("text\n")
    (tmp_path / "link").symlink_to("file")
    assert Secret.parse(f"file:{tmp_path}/link").reveal() == "text"
