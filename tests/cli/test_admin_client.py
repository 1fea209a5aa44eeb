"""The client of the admin API that commands with `--server` use."""

from __future__ import annotations

import pytest

from gateway.cli.admin_client import AdminClient
from gateway.cli.server_option import Server


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [
        ("http://127.0.0.1:8081", False),
        ("http://localhost:8081", False),
        ("http://[::1]:8081", False),
        ("https://gateway.example.com", False),
        ("http://gateway.example.com", True),
        ("http://127.0.0.1.example.com", True),
        ("http://localhost.example.com", True),
    ],
)
async def test_address_of_another_machine_without_tls_is_warned_about(
    url: str, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    await AdminClient(Server(url, "gwa_x")).close()
    assert ("is not encrypted" in capsys.readouterr().err) == is_warned
